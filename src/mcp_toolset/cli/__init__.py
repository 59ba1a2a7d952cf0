"""The command line: serve, list, search, call, check, install.

`mcp-toolset` and `python -m mcp_toolset` run it. It may import every other room.
"""
