"""Model providers: their messages as calls, and results as their messages.

`calls.rounds` uses it. It may import `calls.pipeline`, `tools` and `errors`.
"""
