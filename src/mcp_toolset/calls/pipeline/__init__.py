"""The way of one call: gate, arguments, middleware, hooks, handler, output.

`server` and `calls.rounds` use it. It may import `tools` and `errors`.
"""
