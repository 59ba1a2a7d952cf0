"""Hooks are closures, functions, methods and objects, for one call, one round, one toolset and one server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mcp_toolset import (
    HookSet,
    Reject,
    Rules,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.middleware import tool_middleware

pytestmark = pytest.mark.anyio


@tool
def read(path: str = "") -> str:
    """Read."""
    return "read"


@tool
def write(path: str = "") -> str:
    """Write."""
    return "written"


async def function(call: ToolCall, input: dict[str, Any]) -> Reject:
    return Reject("no")


def closure(reason: str) -> Any:
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject(reason)

    return refuse


class Guard:
    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def method(self, call: ToolCall, input: dict[str, Any], context: ToolContext) -> Reject:
        return Reject(self.reason)

    async def __call__(self, call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject(self.reason)

    @staticmethod
    async def static(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("no")


async def more(reason: str, call: ToolCall, input: dict[str, Any]) -> Reject:
    return Reject(reason)


KINDS: dict[str, Callable[[], Any]] = {
    "function": lambda: function,
    "closure": lambda: closure("no"),
    "method": lambda: Guard("no").method,
    "static method": lambda: Guard.static,
    "object": lambda: Guard("no"),
    "partial": lambda: partial(more, "no"),
}


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("kind", KINDS)
async def test_s1_a_hook_is_made_of_anything_that_can_be_called(kind: str):
    from mcp_toolset.rounds import ToolRound

    hooks = HookSet()
    hooks.execution("read")(KINDS[kind]())
    tools = Toolset(read, write)
    async with ToolsetServer(tools, hooks=hooks) as server:
        assert (await server.call_tool("read")).text == "Rejected: no"
    plan = await ToolRound.from_calls([ToolCall("read", {}, "1")], tools.view()).apply(hooks)
    assert [one.decision.reason for one in plan.rejected] == ["no"]
    assert (await read.execute({}, rules=Rules(hooks=hooks))).text == "Rejected: no"


async def test_s1_hooks_and_middleware_are_for_one_toolset_wherever_it_is_nested():
    @tool_middleware
    async def mark(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
        return ToolResult.of_text(f"{(await next()).text}!")

    files = Toolset(read, write)

    @tool(name="read")
    def other() -> str:
        """Read something else."""
        return "other"

    hooks = HookSet()
    hooks.execution(files)(closure("no"))
    rules = Rules(hooks=hooks, tool_middleware={files: [mark]})
    tools = Toolset(other, files.prefixed("files"))
    async with ToolsetServer(tools, rules=rules) as server:
        assert [(await server.call_tool(name)).text for name in server.toolset.names()] == [
            "other",
            "Rejected: no!",
            "Rejected: no!",
        ]
