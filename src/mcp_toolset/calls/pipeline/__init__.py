"""The way of one call: gate, arguments, middleware, hooks, handler, output.

`server` and extensions use it. It may import `tools` and `errors`.
"""
