"""Tool calls that come in memory: the short way does what the SDK's dispatcher does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from mcp_toolset.concurrency.tasks import TaskScope, TaskSet
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.sdk import stream_dispatcher
from mcp_toolset.transports.message_dispatcher import MessageStreams

pytestmark = pytest.mark.anyio

Params = Mapping[str, Any] | None
Handler = Callable[[Any, str, Params], Awaitable[dict[str, Any]]]
WAYS = pytest.mark.parametrize("dispatcher", [MessageStreams, stream_dispatcher])
who: ContextVar[str] = ContextVar("who")


async def ignore(context: Any, method: str, params: Params) -> None:
    return None


async def refuse(context: Any, method: str, params: Params) -> dict[str, Any]:
    raise MCPError(types.METHOD_NOT_FOUND, "none here")


@asynccontextmanager
async def speaking(
    dispatcher: Any, handler: Handler, answer: Handler = refuse
) -> AsyncGenerator[tuple[Any, anyio.CancelScope]]:
    """The SDK's client side, and the scope in which the dispatcher under test serves."""
    with anyio.fail_after(40):
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            serving = anyio.CancelScope()

            async def serve(*, task_status: Any) -> None:
                with serving:
                    served = dispatcher(*theirs, inline=frozenset({"initialize"}))
                    await served.run(handler, ignore, task_status=task_status)

            client = stream_dispatcher(*ours)
            await group.start(serve)
            await group.start(client.run, answer, ignore)
            yield client, serving
            group.cancel_scope.cancel()


@WAYS
async def test_f28_calls_at_once_are_answered_each_with_its_own(dispatcher: Any) -> None:
    async def echo(context: Any, method: str, params: Params) -> dict[str, Any]:
        await context.progress((params or {})["n"], None, None)
        return {"n": (params or {})["n"]}

    answers: dict[int, Any] = {}
    reports: dict[int, Any] = {}

    async def call(client: Any, number: int) -> None:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports[number] = progress

        opts = {"on_progress": on_progress}
        answers[number] = await client.send_raw_request("tools/call", {"n": number}, opts)

    async with speaking(dispatcher, echo) as (client, _), anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(call, client, number)
    assert answers == {number: {"n": number} for number in range(50)}
    assert reports == {number: number for number in range(50)}


@WAYS
async def test_a_handler_runs_in_the_context_of_whoever_sent_the_call(dispatcher: Any) -> None:
    async def tell(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {"who": who.get("nobody")}

    async with speaking(dispatcher, tell) as (client, _):
        who.set("ada")
        assert await client.send_raw_request("tools/call", {}) == {"who": "ada"}
        who.set("bob")
        assert await client.send_raw_request("tools/call", {}) == {"who": "bob"}


@WAYS
async def test_p5_a_handler_can_ask_the_client_that_called(dispatcher: Any) -> None:
    async def ask(context: Any, method: str, params: Params) -> dict[str, Any]:
        return await context.send_raw_request("roots/list", {"from": method})

    async def answer(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {"method": method, "params": dict(params or {})}

    async with speaking(dispatcher, ask, answer) as (client, _):
        found = await client.send_raw_request("tools/call", {})
    assert found == {"method": "roots/list", "params": {"from": "tools/call"}}


@WAYS
@pytest.mark.parametrize("raised", [MCPError(-31000, "no", {"a": 1}), MCPError(-32602, "bad")])
async def test_what_a_handler_raises_is_the_answer(dispatcher: Any, raised: MCPError) -> None:
    async def fail(context: Any, method: str, params: Params) -> dict[str, Any]:
        raise raised

    async with speaking(dispatcher, fail) as (client, _):
        with pytest.raises(MCPError) as fault:
            await client.send_raw_request("tools/call", {})
    assert (fault.value.code, fault.value.message, fault.value.data) == (
        raised.code,
        raised.message,
        raised.data,
    )


@WAYS
async def test_f26_a_cancelled_call_is_cancelled_in_its_handler(dispatcher: Any) -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def hang(context: Any, method: str, params: Params) -> dict[str, Any]:
        if (params or {}).get("quick"):
            return {"quick": True}
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            assert context.cancel_requested.is_set()
            ended.set()
        raise AssertionError

    async with speaking(dispatcher, hang) as (client, _), anyio.create_task_group() as group:
        group.start_soon(client.send_raw_request, "tools/call", {})
        await began.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
            assert await client.send_raw_request("tools/call", {"quick": True}) == {"quick": True}


@WAYS
async def test_f44_when_serving_ends_a_call_under_way_ends_with_it_and_its_caller_knows(
    dispatcher: Any,
) -> None:
    began = anyio.Event()
    ended: list[bool] = []

    async def hang(context: Any, method: str, params: Params) -> dict[str, Any]:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            ended.append(True)
        raise AssertionError

    faults: list[MCPError] = []

    async def call(client: Any) -> None:
        try:
            await client.send_raw_request("tools/call", {})
        except MCPError as fault:
            faults.append(fault)

    async with speaking(dispatcher, hang) as (client, serving), anyio.create_task_group() as group:
        group.start_soon(call, client)
        await began.wait()
        serving.cancel()
    assert ended == [True]
    assert [fault.code for fault in faults] == [types.CONNECTION_CLOSED]


async def test_an_answer_that_nobody_takes_does_not_keep_serving_from_its_end() -> None:
    async def answer(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {}

    call = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={})
    with anyio.fail_after(40):
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            served = MessageStreams(*theirs, inline=frozenset())
            await group.start(served.run, answer, ignore)
            await ours[1].send(SessionMessage(call))
            group.cancel_scope.cancel()


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
