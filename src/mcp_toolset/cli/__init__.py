"""The command line: serve, list, search, call, inspect, install.

`mcp-toolset` and `python -m mcp_toolset` run it. It may import every other room.
"""
