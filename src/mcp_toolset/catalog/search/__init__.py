"""Search for tools by what they do: `SearchIndex`, over words and meaning.

`catalog.deferred` and the command line use it. It may import `tools` and `errors`.
"""
