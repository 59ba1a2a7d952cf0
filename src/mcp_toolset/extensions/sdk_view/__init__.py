"""The SDK's view of a toolset server. It is loaded when a program asks for `ToolsetServer.lowlevel`."""
