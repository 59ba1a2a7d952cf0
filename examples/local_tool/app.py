from mcp_toolset import serve, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    serve(add)  # stdio; transport="http" or "sse" with port=
