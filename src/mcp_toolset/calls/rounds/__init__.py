"""One reply of a model with tool calls, from the message to a committed set of results.

Applications that own their loop call it. It may import `calls.providers`, `calls.pipeline`, `tools` and
`errors`.
"""
