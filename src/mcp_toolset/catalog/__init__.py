"""The catalog of all tools and who may see them: search, grants, pins, the registry, deferred catalogs.

`hub`, `server` and `upstream` use it. It may import `tools` and `errors`, and neither `calls` nor the
wire.
"""
