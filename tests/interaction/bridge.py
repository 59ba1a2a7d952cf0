"""The bridge under test: local tools and a mounted upstream, listed and deferred, behind one server."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_toolset import (
    HookSet,
    Reject,
    RemoteToolset,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    serve,
    tool,
)

UPSTREAM = [sys.executable, str(Path(__file__).with_name("upstream.py"))]


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
async def count(tag: str, context: ToolContext) -> str:
    """Report three steps of progress."""
    for step in range(3):
        await context.progress(step + 1, 3, tag)
    return "done"


@tool
async def linger() -> str:
    """Wait until cancelled."""
    await anyio.sleep_forever()
    return "never"


@tool
def explode() -> str:
    """Raise."""
    raise ValueError("the fuse was lit")


def make() -> ToolsetServer:
    hooks = HookSet()

    @hooks.execution("up_guarded")
    async def no(call: ToolCall, input: dict[str, object]) -> Reject:
        return Reject("not today")

    @hooks.execution("add")
    async def cap(call: ToolCall, input: dict[str, object]) -> RunNormally | Reject:
        if input["a"] == 13:
            return Reject("13 is not added here")
        return RunNormally({**input, "b": 100} if input["a"] == 7 else input)

    upstream = RemoteToolset(UPSTREAM, name="upstream")
    tools = Toolset(add, count, linger, explode, upstream.prefixed("up"), upstream.prefixed("deep").deferred())
    return ToolsetServer(tools, name="bridge-under-test", hooks=hooks)


if __name__ == "__main__":
    serve(make())
