"""The command line: serve, list, search, call, inspect, install.

`mcp-toolset` and `python -m mcp_toolset` call it. It may import every other room.
"""
