"""Tools that take long: a client that declares `io.modelcontextprotocol/tasks` gets a task for its call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from mcp_toolset import ToolCall, ToolContext, ToolResult, Toolset, tool
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.middleware import CallNext, ToolMiddleware

CONFIRMED: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}},
    "required": ["confirm"],
}
NAMED: Final[Mapping[str, Any]] = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Compute for some seconds."""
    await anyio.sleep(seconds)
    return f"computed {label} for {seconds:g} s"


@tool(task="required")
async def failing_job() -> str:
    """Fail after a second."""
    await anyio.sleep(1)
    raise ValueError("the job has failed")


@tool(task="required")
async def protocol_error_job() -> str:
    """End with an error of the protocol."""
    raise UpstreamProtocolError("job", -32603, "the job broke the protocol")


@tool(task="optional")
async def confirm_delete(filename: str, context: ToolContext) -> str:
    """Delete a file, in appearance only, once the user has agreed."""
    answer = await context.ask(f"Delete {filename}?", CONFIRMED)
    return f"deleted {filename}" if answer.content.get("confirm") else f"kept {filename}"


@tool(task="optional")
async def multi_input(context: ToolContext) -> str:
    """Ask the user two questions at once."""
    async with anyio.create_task_group() as group:
        group.start_soon(context.ask, "The first name?", NAMED)
        group.start_soon(context.ask, "The second name?", NAMED)
    return "both answered"


@tool(task="required")
async def test_tool_with_task(user_name: str = "") -> str:
    """Greet the user, who is asked for a name before the task begins."""
    return f"Hello, {user_name}!"


async def ask_name(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    """Ask for the name of the user; middleware runs before the call becomes a task."""
    answer = await context.ask("What is your name?", NAMED)
    call.arguments["user_name"] = str(answer.content.get("name", ""))
    return await next()


JOBS: Final = Toolset(
    greet, slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input, test_tool_with_task
)
BEFORE_JOBS: Final[Mapping[str, Sequence[ToolMiddleware]]] = {"test_tool_with_task": [ask_name]}
