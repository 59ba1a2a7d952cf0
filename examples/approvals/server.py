"""A server whose user is asked before anything is deleted."""

from mcp_toolset import Toolset, serve, tool
from mcp_toolset.policy import Policy


@tool(read_only=True)
def read(path: str) -> str:
    """Read a file."""
    return f"contents of {path}"


@tool(destructive=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


if __name__ == "__main__":
    serve(Toolset(read, delete), policy=Policy(ask=["destructive:*"]))
