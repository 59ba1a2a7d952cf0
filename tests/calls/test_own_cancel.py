"""A tool, hook or middleware that is cancelled from within has failed; a caller who cancels is obeyed."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from tests.support.calling import tool_table

from mcp_toolset import HookSet, RunNormally, ToolCall, ToolContext, ToolResult, Toolset, tool
from mcp_toolset.middleware import CallNext, tool_middleware

pytestmark = pytest.mark.anyio


async def cancelled_from_within() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@tool
async def lost() -> str:
    """Wait for something that was cancelled."""
    await cancelled_from_within()
    return "never"


@tool
async def fine() -> str:
    """Return."""
    return "fine"


async def test_u66_what_a_tool_waited_for_was_cancelled_and_the_call_has_an_error_result() -> None:
    result = await tool_table(Toolset(lost).bindings()).call(ToolCall("lost", {}))
    assert result.is_error
    assert result.text == "lost failed: something that it waited for was cancelled"


async def test_u66_a_hook_that_is_cancelled_from_within_rejects_the_call() -> None:
    hooks = HookSet()

    @hooks.execution("*")
    async def broken(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        await cancelled_from_within()
        return RunNormally(input)

    result = await tool_table(Toolset(fine).bindings(), hooks=hooks).call(ToolCall("fine", {}))
    assert result.is_error and "the check of fine failed" in result.text


async def test_u66_a_middleware_that_is_cancelled_from_within_is_a_fault_of_the_server() -> None:
    @tool_middleware
    async def broken(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        await cancelled_from_within()
        return await next()

    dispatch = tool_table(Toolset(fine).bindings(), middleware=[broken])
    result = await dispatch.call(ToolCall("fine", {}))
    assert result.is_error and "a fault of the server" in result.text


@pytest.mark.parametrize("native", [False, True])
async def test_u66_a_caller_who_cancels_is_obeyed(native: bool) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    @tool
    async def waits() -> str:
        """Wait, and then for something that was cancelled."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    results: list[ToolResult] = []
    call = tool_table(Toolset(waits).bindings()).call(ToolCall("waits", {}))

    async def run() -> None:
        results.append(await call)

    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            if native:
                task = asyncio.get_running_loop().create_task(run())
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                group.start_soon(run)
                await begun.wait()
                group.cancel_scope.cancel()
    assert ended.is_set() and results == []
