"""Budgets of answers for a client that does not read: those of HTTP upstream servers, and for SSE clients."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.shared.message import SessionMessage
from tests.faults.harness import until
from tests.faults.test_unread import Slow, caller_of

from mcp_toolset import HttpLimits, Toolset, ToolsetServer, tool
from mcp_toolset.sdk.dispatch import ObservedDispatcher, stream_dispatcher
from mcp_toolset.transports.backpressure import calling
from mcp_toolset.transports.http import sse_answers
from mcp_toolset.transports.http.app import bound_socket, run_app
from mcp_toolset.transports.http.send_buffers import Unsent
from mcp_toolset.transports.http_client import UpstreamSse
from mcp_toolset.transports.intake import Intake, Metered

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


class Body(httpx2.AsyncByteStream):
    """A body of several chunks of a megabyte, and how many of them were read."""

    def __init__(self, chunks: int, last: bytes = b"") -> None:
        self.chunks, self.read, self.last = chunks, 0, last

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for _ in range(self.chunks):
            self.read += 1
            yield b"x" * MB
        if self.last:
            yield self.last
            await anyio.sleep_forever()


async def read(body: Metered) -> None:
    async for _ in body:
        await anyio.lowlevel.checkpoint()


async def test_u40_bodies_beyond_the_budget_are_read_one_at_a_time_and_all_of_them() -> None:
    intake = Intake(4 * MB)
    bodies = [Body(3) for _ in range(6)]
    most = 0
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def one(body: Body) -> None:
                nonlocal most
                async for _ in Metered(body, intake):
                    most = max(most, intake.size)
                    await anyio.lowlevel.checkpoint()

            for body in bodies:
                group.start_soon(one, body)
    # The budget, and one body.
    assert most <= 7 * MB and intake.size == 0
    assert [body.read for body in bodies] == [3] * 6


async def test_u40_bodies_wait_until_the_client_of_those_before_has_room() -> None:
    intake, client = Intake(4 * MB), Slow()
    bodies = [Body(3) for _ in range(4)]
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for body in bodies:
                calling.set(caller_of(client))
                group.start_soon(read, Metered(body, intake))
            await anyio.wait_all_tasks_blocked()
            assert sum(body.read for body in bodies) <= 9
            assert intake.waiting > 0
            client.gate.set()
    assert [body.read for body in bodies] == [3] * 4
    assert intake.waiting == 0


@pytest.mark.parametrize("is_paced", [False, True])
async def test_u40_a_server_whose_answers_are_not_read_is_not_called_silent(is_paced: bool) -> None:
    send, receive = anyio.create_memory_object_stream[Any](1)
    async with send, receive:
        inner = stream_dispatcher(receive, send, is_paced=lambda: is_paced)
        dispatcher = ObservedDispatcher(inner, None, nothing, nothing, {})
        assert dispatcher.reads is not is_paced


async def nothing(*_: object) -> Any:
    raise AssertionError("nothing is sent")


async def test_u40_a_read_that_is_cancelled_makes_way_for_the_next() -> None:
    intake = Intake(1)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(read, Metered(Body(1, b"y"), intake))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(read, Metered(Body(2), intake))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await read(Metered(Body(2), intake))
    assert intake.size == 0


async def test_u40_each_event_of_a_stream_counts_until_it_is_whole() -> None:
    intake, body = Intake(10 * MB), Body(1, b"\n\n")
    async with anyio.create_task_group() as group:
        group.start_soon(read, Metered(body, intake, events=True))
        await until(lambda: body.read == 1)
        await anyio.wait_all_tasks_blocked()
        assert intake.size == 0
        group.cancel_scope.cancel()


async def test_u40_a_stream_of_an_sse_server_is_not_read_while_the_client_of_an_answer_has_no_room() -> None:
    client, got = Slow(), list[Any]()

    async def take(message: types.JSONRPCMessage) -> None:
        got.append(message)

    def answered(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(202)
        messages = [{"jsonrpc": "2.0", "id": number, "result": {}} for number in (1, 2)]
        events = "".join(f"event: message\ndata: {json.dumps(message)}\n\n" for message in messages)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=events)

    async with UpstreamSse(take, transport=httpx2.MockTransport(answered)) as http:
        calling.set(caller_of(client))

        async def listen() -> None:
            async with http.stream("GET", "http://127.0.0.1/sse") as stream:
                await stream.aread()

        for number in (1, 2):
            ping = {"jsonrpc": "2.0", "id": number, "method": "ping"}
            await http.post("http://127.0.0.1/messages", json=ping)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await until(lambda: len(got) == 1)
                await anyio.wait_all_tasks_blocked()
                assert len(got) == 1
                client.gate.set()
    assert [message.id for message in got] == [1, 2]


@tool
def text(size: int) -> str:
    """As much text as is asked for."""
    return "x" * size


@asynccontextmanager
async def serving(**limits: int) -> AsyncGenerator[str]:
    async with ToolsetServer(Toolset(text)) as server:
        app = server.http_app(limits=HttpLimits(**limits))
        with anyio.fail_after(60), bound_socket("127.0.0.1", 0) as listening:
            async with anyio.create_task_group() as group:
                group.start_soon(run_app, app, listening)
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
                group.cancel_scope.cancel()


async def test_u40_results_for_an_sse_client_that_does_not_read_have_a_budget_and_one_that_reads_gets_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = list[dict[str, Any]]()
    made = list[Any]()
    init = sse_answers.SseAnswers.__init__

    def noted(self: Any, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(sse_answers.SseAnswers, "__init__", noted)
    async with serving(unread_per_peer=20 * MB) as url, httpx2.AsyncClient(timeout=None) as http:
        async with http.stream("GET", f"{url}/sse") as stream:
            lines = stream.aiter_lines()

            async def data() -> str:
                async for line in lines:
                    if line.startswith("data: "):
                        return line[6:]
                raise EOFError

            path = await data()
            about = {"name": "c", "version": "1"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
            await http.post(
                url + path, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            )
            await data()
            await http.post(url + path, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            for number in range(1, 11):
                params = {"name": "text", "arguments": {"size": 8 * MB}}
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                await http.post(url + path, json=call)
            await until(lambda: made[0]._unsent.size > 8 * MB and made[0]._waiting > 5)
            assert made[0]._unsent.size < 30 * MB
            while len(answers) < 10:
                answers.append(json.loads(await data()))
        assert sorted(answer["id"] for answer in answers) == list(range(1, 11))
        dropped = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert 1 <= len(dropped) <= 8 and "unread_per_peer is" in dropped[0]
        async with sse_client(f"{url}/sse") as streams, ClientSession(*streams) as session:
            await session.initialize()
            for _ in range(4):
                result = await session.call_tool("text", {"size": 800_000})
                assert not result.is_error


async def test_u40_nothing_more_is_taken_of_an_sse_client_for_which_many_answers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse_answers, "MANY", 2)
    sender, receiver = anyio.create_memory_object_stream[Any](0)
    answers = sse_answers.SseAnswers(sender, Unsent(HttpLimits()), "peer")
    taken = list[int]()

    async def numbers() -> AsyncGenerator[int]:
        for number in range(3):
            yield number

    async def take() -> None:
        async for number in sse_answers.SseRequests(numbers(), answers):
            taken.append(number)

    async with sender, receiver, anyio.create_task_group() as group:
        for number in range(2):
            answer = types.JSONRPCResponse(jsonrpc="2.0", id=number, result={})
            group.start_soon(answers.send, SessionMessage(answer))
        await anyio.wait_all_tasks_blocked()
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert not taken
        for _ in range(2):
            await receiver.receive()
    assert taken == [0, 1, 2]
    assert answers._unsent.size == 0
