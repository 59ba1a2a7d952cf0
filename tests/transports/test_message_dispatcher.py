"""Calls over message streams in memory, beside what `tests/interaction/test_doors.py` asks of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from tests.support.piped import handshake, legacy

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.concurrency.tasks import TaskScope, TaskSet

pytestmark = pytest.mark.anyio

who: ContextVar[str] = ContextVar("who")


@asynccontextmanager
async def streams(function: Callable[..., Any]) -> AsyncGenerator[tuple[Any, anyio.CancelScope]]:
    """The client's streams to a server with one tool, and the scope in which it serves."""
    with anyio.fail_after(40):
        async with (
            ToolsetServer(Toolset(function)) as server,
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            serving, options = anyio.CancelScope(), server.lowlevel.create_initialization_options()

            async def serve() -> None:
                with serving:
                    await server.lowlevel.run(*theirs, options)

            group.start_soon(serve)
            yield ours, serving
            group.cancel_scope.cancel()


@asynccontextmanager
async def speaking(function: Callable[..., Any]) -> AsyncGenerator[tuple[ClientSession, anyio.CancelScope]]:
    """The SDK's client of it."""
    async with streams(function) as (ours, serving), ClientSession(*ours) as client:
        await client.initialize()
        yield client, serving


async def test_a_tool_runs_in_the_context_of_whoever_sent_the_call() -> None:
    async def tell() -> str:
        return who.get("nobody")

    async with speaking(tell) as (client, _):
        for name in ("ada", "bob"):
            who.set(name)
            (content,) = (await client.call_tool("tell")).content
            assert content.text == name  # pyright: ignore[reportAttributeAccessIssue]


async def test_f44_when_serving_ends_a_call_under_way_ends_with_it_and_its_caller_knows() -> None:
    began = anyio.Event()
    ended: list[bool] = []

    async def hang() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    faults: list[int] = []

    async def call(client: ClientSession) -> None:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("hang")
        faults.append(raised.value.code)

    async with speaking(hang) as (client, serving), anyio.create_task_group() as group:
        group.start_soon(call, client)
        await began.wait()
        serving.cancel()
    assert ended == [True] and faults == [types.CONNECTION_CLOSED]


async def test_an_answer_that_nobody_takes_does_not_keep_serving_from_its_end() -> None:
    called = anyio.Event()

    async def answer() -> None:
        called.set()

    async with streams(answer) as ((read, write), _):
        await write.send(SessionMessage(types.JSONRPCRequest(**handshake(1))))
        await read.receive()
        await write.send(SessionMessage(types.JSONRPCRequest(**legacy(2, "tools/call", name="answer"))))
        await called.wait()
        await anyio.wait_all_tasks_blocked()


async def test_a_handler_that_fails_as_none_should_ends_its_owner() -> None:
    failed = anyio.Event()

    async def bug() -> None:
        raise KeyError("bug")

    with anyio.fail_after(40):
        handling = TaskSet(failed.set)
        handling.start(TaskScope(), bug())
        await failed.wait()
        await handling.end()
    assert isinstance(handling.fault, KeyError)
