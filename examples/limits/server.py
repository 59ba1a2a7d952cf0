"""A server whose callers may make 60 calls in a minute, and two of its slow tool at a time."""

from mcp_toolset import Toolset, serve, tool
from mcp_toolset.policy import Limits


@tool(read_only=True)
def report(month: str) -> str:
    """Make the report of a month."""
    return f"Report of {month}"


limits = {"*": Limits(rate="60/min"), "report": Limits(concurrency=2, timeout=30)}

if __name__ == "__main__":
    serve(Toolset(report), limits=limits)
