from typing import Any

from mcp_toolset import HookSet, Reject, RemoteToolset, RunNormally, ToolCall, Toolset, serve, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


hooks = HookSet()


@hooks.execution("add")
async def small_numbers(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
    return RunNormally(input) if input["a"] < 1000 else Reject("a must be below 1000")


tools = Toolset(
    add,  # yours
    RemoteToolset(["mcp-server-git", "-r", "."], name="git").deferred(),  # another server's, behind search
)

if __name__ == "__main__":
    serve(tools, hooks=hooks)
