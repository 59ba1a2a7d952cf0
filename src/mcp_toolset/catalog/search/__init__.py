"""Finding tools by what they do: an index over words and meaning.

`catalog.deferred` and the command line call it. It may import `tools` and `errors`.
"""
