"""A server that lists its tools to the clients that find tools by themselves, and searches for the others."""

from mcp_toolset import Toolset, ToolsetServer, serve, tool


@tool(read_only=True)
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


server = ToolsetServer(Toolset(weather).deferred(), surface="auto")

if __name__ == "__main__":
    serve(server)
