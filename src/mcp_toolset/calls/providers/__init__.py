"""Messages of the providers of models as calls, and results as their messages.

`calls.rounds` calls it. It may import `calls.pipeline`, `tools` and `errors`.
"""
