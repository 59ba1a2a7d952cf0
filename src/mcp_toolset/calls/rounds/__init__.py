"""Rounds: one model reply with tool calls, from the message to a committed set of results.

Applications that own their loop use it. It may import `calls.providers`, `calls.pipeline`, `tools` and
`errors`.
"""
