"""One of several replicas: start as many as you like, and put any load balancer before them."""

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.shared import SharedState


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


def server(url: str) -> ToolsetServer:
    """A replica that shares its state in the Redis or Valkey at this URL."""
    return ToolsetServer(Toolset(add, Toolset(read_invoice).deferred()), shared=SharedState(url))


if __name__ == "__main__":
    import sys

    from mcp_toolset import serve

    serve(server("redis://127.0.0.1:6379"), transport="http", port=int(sys.argv[1]))
