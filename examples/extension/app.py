"""A server whose results have no secrets: the extension is given as an object."""

from redact import Redact

from mcp_toolset import Toolset, ToolsetServer, serve, tool


@tool(read_only=True)
def account(name: str) -> dict[str, str]:
    """Show an account."""
    return {"name": name, "key": "sk-4f2a9c10b7d1"}


server = ToolsetServer(Toolset(account), extensions=[Redact()])

if __name__ == "__main__":
    serve(server)
