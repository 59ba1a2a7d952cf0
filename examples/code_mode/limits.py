"""The same tools with limits of their own."""

from examples.code_mode.server import tools

from mcp_toolset import ToolsetServer
from mcp_toolset.code import CodeMode

server = ToolsetServer(tools, code=CodeMode(seconds=5, timeout=120, calls=200, suspensions=1000))
