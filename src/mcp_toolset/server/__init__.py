"""The server that clients talk to: `ToolsetServer`, its table of tools, its changes and its state.

`serving`, `hub` and applications call it. It may import `transports` and the rooms below, never `upstream`.
"""
