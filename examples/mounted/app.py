from mcp_toolset import RemoteToolset, Toolset, serve, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    serve(
        Toolset(
            add,
            RemoteToolset("https://host/mcp", name="github").prefixed("gh"),
            RemoteToolset(["mcp-server-git", "-r", "."], name="git").deferred(),
        )
    )
