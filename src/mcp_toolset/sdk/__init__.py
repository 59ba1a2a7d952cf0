"""The inner seams of the MCP SDK, in one place.

Every room above calls it. It may import `tools`, `concurrency` and `errors`.
"""
