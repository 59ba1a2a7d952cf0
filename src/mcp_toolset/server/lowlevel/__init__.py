"""The SDK's view of a toolset server. It is loaded when a program asks for `ToolsetServer.lowlevel`.

`server` calls it. It may import every room that `server` may, and `sdk`.
"""
