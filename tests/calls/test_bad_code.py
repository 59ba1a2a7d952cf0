"""Hooks, middleware and tools that do what they must not: the call fails, and nothing else does (F38, N2)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import anyio
import pytest

from mcp_toolset import (
    HookSet,
    Reject,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    rejection_reason,
    tool,
)
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a


async def nothing(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    return None  # pyright: ignore[reportReturnType]


async def text(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    return "done"  # pyright: ignore[reportReturnType]


async def leaving(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    sys.exit(3)


@pytest.mark.parametrize("middleware", [nothing, text, leaving])
async def test_n2_a_middleware_that_gives_no_result_or_exits_fails_its_call_alone(
    middleware: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.CRITICAL + 1)
    async with ToolsetServer(Toolset(add), tool_middleware={"add": [middleware]}) as server:
        result = await server.call_tool("add", {"a": 1})
        assert result.is_error and result.text == "add could not be run because of a fault of the server"


@pytest.mark.parametrize("reason", [None, 5, {"why": "so"}])
async def test_f38_a_refusal_without_words_still_refuses(reason: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL + 1)
    hooks = HookSet()

    @hooks.execution("add")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject(reason)

    async with ToolsetServer(Toolset(add), hooks=hooks) as server:
        result = await server.call_tool("add", {"a": 1})
    assert rejection_reason(result) is not None and "failed, so it was not run" in result.text


async def test_f23_a_reason_that_no_wire_can_carry_is_made_fit():
    hooks = HookSet()

    @hooks.execution("add")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("no \ud800")

    async with ToolsetServer(Toolset(add), hooks=hooks) as server:
        result = await server.call_tool("add", {"a": 1})
    found = rejection_reason(result)
    assert found is not None and (found.reason, result.text) == ("no ?", "Rejected: no ?")


async def test_n7_what_failed_in_a_task_group_of_a_tool_is_told_and_not_that_there_was_one(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.CRITICAL + 1)

    async def fail() -> None:
        raise ValueError("the disk is full")

    @tool
    async def work() -> str:
        """Work in parts."""
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
        return "done"

    async with ToolsetServer(Toolset(work)) as server:
        result = await server.call_tool("work")
    assert result.is_error and result.text == "work failed: the disk is full"
