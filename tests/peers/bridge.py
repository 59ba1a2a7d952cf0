"""What `mcp-toolset serve` serves to the Inspector: local tools and one server, half of it deferred."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.warm import python

from mcp_toolset import (
    HookSet,
    Reject,
    RemoteToolset,
    RunNormally,
    ToolCall,
    Toolset,
    ToolsetServer,
    serve,
    tool,
)

COMMAND = Path(sys.executable).with_name("mcp-server-time")
clock = RemoteToolset(python(str(COMMAND), "--local-timezone", "UTC"), name="clock", start_timeout=60)
hooks = HookSet()


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool
def explode() -> str:
    """Raise."""
    raise ValueError("the fuse was lit")


@hooks.execution("get_current_time")
async def no_mars(call: ToolCall, input: dict[str, object]) -> RunNormally | Reject:
    return Reject("Mars has no time") if input["timezone"] == "Mars/Base" else RunNormally(input)


tools = Toolset(
    add, explode, clock.filtered(include=["get_*"]), clock.filtered(include=["convert_*"]).deferred()
)
# On a busy machine the clock takes longer to start than lists wait by default.
serve(ToolsetServer(tools, name="bridge-of-peers", hooks=hooks, list_timeout=60))
