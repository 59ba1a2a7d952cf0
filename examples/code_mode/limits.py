"""The same tools with limits of their own."""

from server import tools

from mcp_toolset import ToolsetServer, serve
from mcp_toolset.code import CodeMode

limited = ToolsetServer(
    tools, code=CodeMode(max_compute_seconds=5, timeout=120, max_calls=200, max_stops=1000)
)

if __name__ == "__main__":
    serve(limited)
