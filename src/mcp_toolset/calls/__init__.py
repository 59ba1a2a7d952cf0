"""What happens to a call: decisions, hooks, middleware and dispatch.

`server` and applications use it. It may import `tools` and `errors`, and neither `catalog` nor the wire.
"""
