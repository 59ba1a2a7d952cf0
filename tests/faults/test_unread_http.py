"""Budgets of answers for a client that does not read: those of HTTP upstream servers, and for SSE clients."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from starlette.types import Message
from tests.faults.harness import until

from mcp_toolset import HttpLimits, Toolset, ToolsetServer, tool
from mcp_toolset.transports.http import event_stream as sse
from mcp_toolset.transports.http.app import bound_socket, run_app
from mcp_toolset.transports.http.limits import Unsent

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


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
    init = sse.EventStream.__init__

    def noted(self: Any, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(sse.EventStream, "__init__", noted)
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
            await until(lambda: made[0]._unsent.size > 8 * MB and made[0].waiting > 5)
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
    monkeypatch.setattr(sse, "MANY", 2)
    go_on, sent = anyio.Event(), list[bytes]()

    async def send(message: Message) -> None:
        await go_on.wait()
        sent.append(message["body"])

    stream = sse.EventStream(send, Unsent(HttpLimits()), "peer")
    taken = list[int]()

    async def take() -> None:
        for number in range(3):
            await stream.few()
            taken.append(number)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(2):
                stream.write_line(b"%d" % number)
            group.start_soon(stream.run)
            group.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            assert not taken
            go_on.set()
            await until(lambda: taken == [0, 1, 2])
            group.cancel_scope.cancel()
    assert sent == [b"event: message\r\ndata: %d\r\n\r\n" % number for number in range(2)]
    assert stream._unsent.size == 0
