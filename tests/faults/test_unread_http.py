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

from mcp_toolset import HttpLimits, Toolset, ToolsetServer, tool
from mcp_toolset.transports.http import sse_answers
from mcp_toolset.transports.http.app import bound_socket, run_app
from mcp_toolset.transports.http.send_buffers import Unsent

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
