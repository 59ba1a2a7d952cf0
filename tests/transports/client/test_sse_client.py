"""HTTP+SSE as a client: one stream for all answers, and posts or streams that fail."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.faults.test_unread import Slow, caller_of
from tests.support.bounds import bounds
from tests.transports.client.raw_server import (
    Heard,
    MCPError,
    Raw,
    Request,
    RequestTimedOut,
    raw_server,
    running,
    says_broke_off,
    says_ended,
    sse_client,
)

from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.transports.requests import calling
from mcp_toolset.transports.sse_client import SseClient

pytestmark = pytest.mark.anyio


class Server:
    """A server of HTTP+SSE whose posts do what their method says."""

    def __init__(self, first: bytes = b"event: endpoint\ndata: /messages?session_id=1\n\n") -> None:
        self.first = first
        self.stream: Request | None = None
        self.begun = anyio.Event()

    async def __call__(self, request: Request) -> None:
        if request.verb == "GET":
            self.stream = request
            await request.begin_events()
            await request.chunk(self.first)
            self.begun.set()
            await request.gone()
            return request.writer.close()
        assert request.path == "/messages?session_id=1" and self.stream is not None
        message = request.message
        match message.get("method"):
            case "refuse":
                return await request.answer(None, "500 Oops")
            case "drop":
                return request.writer.close()
            case "silence" | "notifications/cancelled" | None:
                return await request.answer(None, "202 Accepted")
            case "answer first":
                await self.stream.event(request.result())
                await request.gone()
                return request.writer.close()
            case "end":
                await self.stream.chunk(b"")
            case "break":
                self.stream.writer.transport.abort()
            case "odd":
                await self.stream.chunk(b"data: {\n\ndata:\n\nevent: other\ndata: x\n\n")
                await self.stream.event({"jsonrpc": "2.0", "id": 99, "result": {}})
                await self.stream.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
                await self.stream.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
                await self.stream.event(request.result())
            case _:
                await self.stream.event(request.result({"of": message["params"]}))
        await request.answer(None, "202 Accepted")


@asynccontextmanager
async def connected(server: Server) -> AsyncGenerator[tuple[SseClient, Raw, Heard]]:
    async with raw_server(server) as raw, sse_client("up", raw.url, {"x-key": "k"}) as client:
        async with running(client) as heard:
            yield client, raw, heard


async def test_answers_come_on_the_stream_and_requests_of_the_server_are_answered_by_posts() -> None:
    async with connected(Server()) as (client, raw, heard):
        assert await client.send_raw_request("odd", None) == {"ok": True}
        results = dict[int, Any]()

        async def call(number: int) -> None:
            results[number] = (await client.send_raw_request("tools/call", {"n": number}))["of"]

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(call, number)
        assert results == {number: {"n": number} for number in range(100)}
        assert heard.asked == ["roots/list"] and [method for method, _ in heard.notes] == [
            "notifications/message"
        ]
        replies = [request.message for request in raw.log if request.body and "result" in request.message]
        assert replies == [{"jsonrpc": "2.0", "id": "q", "result": {"of": "roots/list"}}]
        assert {request.headers["x-key"] for request in raw.log} == {"k"}


@pytest.mark.parametrize("method", ["refuse", "drop"])
async def test_a_post_that_fails_is_one_request_that_fails(method: str) -> None:
    async with connected(Server()) as (client, raw, heard):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request(method, None)
        assert says_broke_off(failed.value) and not heard.ended.is_set()
        assert await client.send_raw_request("odd", None) == {"ok": True}
        assert [request.message["method"] for request in raw.log if request.body][0] == method


@pytest.mark.parametrize("method", ["end", "break"])
async def test_the_end_of_the_stream_is_the_end_of_the_connection(method: str) -> None:
    async with connected(Server()) as (client, _, heard):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request(method, None)
        await heard.ended.wait()
        assert says_ended(failed.value) and heard.fault is None


async def test_an_answer_counts_before_its_post_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, sse_acknowledged=0.01)
    async with connected(Server()) as (client, _, _):
        for _ in range(3):
            assert await client.send_raw_request("answer first", None) == {"ok": True}
        while len(client._handling._tasks) > 1:  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_a_request_that_is_given_up_is_told_of() -> None:
    async with connected(Server()) as (client, raw, _):
        with pytest.raises(RequestTimedOut):
            await client.send_raw_request("silence", None, {"timeout": 0.05})
        await until(lambda: told(raw) == [1])
        async with anyio.create_task_group() as group:
            group.start_soon(client.send_raw_request, "silence", None)
            await until(lambda: any(b'"id":2' in request.body for request in raw.log))
            group.cancel_scope.cancel()
        await until(lambda: told(raw) == [1, 2])


def told(raw: Raw) -> list[int]:
    """The requests that the server was told are given up."""
    return [request.message["params"]["requestId"] for request in raw.log if b"cancelled" in request.body]


FIRST: dict[str, tuple[bytes, str]] = {
    "another origin": (b"event: endpoint\ndata: http://elsewhere.example/x?key=s\n\n", "another origin"),
    "no address": (b": hello\n\n", "before it named an address"),
}


@pytest.mark.parametrize("name", FIRST)
async def test_a_stream_that_names_no_address_of_its_origin_is_no_connection(name: str) -> None:
    first, why = FIRST[name]

    async def handler(request: Request) -> None:
        await request.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        request.writer.close()

    async with raw_server(handler) as raw:
        with pytest.raises(UpstreamUnavailableError, match=why) as failed:
            async with sse_client("up", raw.url, {}):
                raise AssertionError("it is none")
    assert "key=s" not in str(failed.value)


@pytest.mark.parametrize("status", ["404 Not Found", "200 OK", "302 Found"])
async def test_what_is_no_stream_is_no_connection(status: str) -> None:
    async def handler(request: Request) -> None:
        await request.answer(b"<html>", status, content_type="text/html", location="http://other.example/")

    async with raw_server(handler) as raw:
        with pytest.raises(UpstreamUnavailableError, match=f"no stream of events, but HTTP {status[:3]}"):
            async with sse_client("up", raw.url, {}):
                raise AssertionError("it is none")


async def test_an_event_that_is_too_long_ends_the_connection_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, sse_message=10_000)
    async with connected(Server()) as (client, _, heard):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request("tools/call", {"x": "y" * 20_000})
        await heard.ended.wait()
        assert says_ended(failed.value)
        assert isinstance(heard.fault, UpstreamUnavailableError) and "10000 bytes" in str(heard.fault)


async def test_u40_the_stream_is_not_read_while_the_client_of_an_answer_has_no_room() -> None:
    slow, got = Slow(), list[int]()
    server = Server()
    async with connected(server) as (client, _, _):

        async def ask(number: int) -> None:
            calling.set(caller_of(slow))
            await client.send_raw_request("silence", None, {"request_id": number})
            got.append(number)

        async with anyio.create_task_group() as group:
            for number in (1, 2):
                group.start_soon(ask, number)
            while len(client._waiting) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.005)
            messages = [{"jsonrpc": "2.0", "id": number, "result": {}} for number in (1, 2)]
            assert server.stream is not None
            await server.stream.chunk(
                b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in messages)
            )
            while not got:  # noqa: ASYNC110
                await anyio.sleep(0.005)
            await anyio.wait_all_tasks_blocked()
            assert got == [1] and client.paced
            slow.gate.set()
    assert got == [1, 2] and not client.paced
