"""Where tools come from and which are seen: search, grants, pins, the registry and deferred catalogs.

`hub`, `server` and `upstream` call it. It may import `tools` and `errors`, and neither `calls` nor the
wire.
"""
