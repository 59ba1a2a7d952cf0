"""Streamable HTTP as a client: sessions, streams that are opened again, requests that are given up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.support.bounds import bounds
from tests.transports.client.raw_server import (
    EVENTS,
    JSON,
    LEGACY,
    MODERN,
    Heard,
    HttpClient,
    MCPError,
    Raw,
    Request,
    RequestTimedOut,
    connected,
    http_client,
    raw_server,
    replying,
    running,
    says_broke_off,
    says_ended,
)

from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.protocol.dispatch import CallOptions

pytestmark = pytest.mark.anyio


class Session:
    """A legacy server with a session; `streams` are its replies to GET, the last one stays open."""

    def __init__(self, *streams: bytes) -> None:
        self.streams = list(streams)
        self.calls: dict[str, Callable[[Request], Awaitable[None]]] = {}

    async def __call__(self, request: Request) -> None:
        if request.verb == "DELETE":
            return await request.answer(None, "200 OK")
        if request.verb == "GET":
            await request.send(self.streams.pop(0))
            if self.streams:
                return request.writer.close()
            return await anyio.sleep_forever()
        message = request.message
        if message.get("method") == "initialize":
            result = request.result({"protocolVersion": "2025-11-25"})
            return await request.answer(result, mcp_session_id="s-1")
        if "id" not in message:
            return await request.answer(None, "202 Accepted")
        await self.calls[message["params"]["name"]](request)


@asynccontextmanager
async def session(server: Session) -> AsyncGenerator[tuple[HttpClient, Raw, Heard]]:
    async with connected(server) as (client, raw, heard):
        await client.send_raw_request("initialize", {"protocolVersion": "2025-11-25"})
        await client.notify("notifications/initialized", None)
        yield client, raw, heard


def verbs(raw: Raw) -> list[str]:
    return [request.verb for request in raw.log]


NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'


async def test_a_session_names_itself_and_its_revision_and_is_ended() -> None:
    async with session(Session(EVENTS + b"\r\n")) as (client, raw, _):
        await until(lambda: "GET" in verbs(raw))
    assert verbs(raw) == ["POST", "POST", "GET", "DELETE"]
    assert "mcp-session-id" not in raw.log[0].headers and "mcp-protocol-version" not in raw.log[0].headers
    for request in raw.log[1:]:
        assert request.headers["mcp-session-id"] == "s-1"
        assert request.headers["mcp-protocol-version"] == "2025-11-25"


async def test_the_stream_of_a_session_is_opened_again_after_the_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, first_retry=0.01)
    server = Session(EVENTS + b"\r\nid: a\n" + NOTE, b"", EVENTS + b"\r\n" + NOTE)
    async with session(server) as (_, raw, heard):
        await until(lambda: len(heard.notes) == 2)
        gets = [request for request in raw.log if request.verb == "GET"]
        assert [request.headers.get("last-event-id") for request in gets] == [None, "a", "a"]


@pytest.mark.parametrize(("refusal", "asked"), [(b"405 No", 1), (b"500 Oops", 2)])
async def test_a_server_that_refuses_the_stream_is_left_alone(
    refusal: bytes, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, first_retry=0.01)
    reply = b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % refusal
    server = Session(reply, reply, reply, reply)
    async with session(server) as (client, raw, _):
        await until(lambda: verbs(raw).count("GET") == asked and not client._handling.busy)
        assert verbs(raw).count("GET") == asked


async def test_a_session_that_the_server_has_ended_ends_the_connection() -> None:
    async def gone(request: Request) -> None:
        error = {"code": -32600, "message": "Session not found"}
        await request.answer({"jsonrpc": "2.0", "id": None, "error": error}, "404 Not Found")

    server = Session(EVENTS + b"\r\n")
    server.calls = {"gone": gone}
    async with session(server) as (client, raw, heard):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request("tools/call", {"name": "gone"})
        await heard.ended.wait()
        with pytest.raises(MCPError) as refused:
            await client.send_raw_request("tools/call", {"name": "gone"})
    assert says_ended(failed.value) and says_ended(refused.value)
    assert isinstance(heard.fault, UpstreamUnavailableError) and "ended the session" in str(heard.fault)
    assert "DELETE" not in verbs(raw)


async def test_the_rest_of_an_answer_is_asked_for_after_the_time_that_the_server_says() -> None:
    times = list[float]()

    async def cut(request: Request) -> None:
        times.append(anyio.current_time())
        await request.send(EVENTS + b"\r\nid: e-1\nretry: 300\ndata:\n\n" + NOTE)
        request.writer.close()

    rest = b'data: {"jsonrpc":"2.0","id":2,"result":{"rest":true}}\n\n'
    server = Session(b"", EVENTS + b"\r\n" + NOTE + b"id: e-2\n\n", EVENTS + b"\r\n" + rest, b"")
    server.calls = {"cut": cut}
    async with connected(server) as (client, raw, heard):
        await client.send_raw_request("initialize", {})
        result = await client.send_raw_request("tools/call", {"name": "cut"})
        assert result == {"rest": True} and len(heard.notes) == 2
        assert anyio.current_time() - times[0] > 0.85
        gets = [request.headers["last-event-id"] for request in raw.log if request.verb == "GET"]
        assert gets == ["e-1", "e-1", "e-2"]


async def test_a_server_that_refuses_the_rest_has_lost_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, http_retry=0.01)

    async def cut(request: Request) -> None:
        await request.send(EVENTS + b"\r\nid: 1\n\n")
        request.writer.close()

    refused = b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"
    server = Session(refused, refused, refused)
    server.calls = {"cut": cut}
    async with connected(server) as (client, raw, heard):
        await client.send_raw_request("initialize", {})
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request("tools/call", {"name": "cut"})
        assert says_broke_off(failed.value) and verbs(raw).count("GET") == 2 and not heard.ended.is_set()


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("moment", ["before the reply", "in a body", "in a stream"])
async def test_a_cancelled_request_is_told_of_as_its_era_does(modern: bool, moment: str) -> None:
    begun, gone = anyio.Event(), anyio.Event()
    told = list[Any]()

    async def handler(request: Request) -> None:
        if request.message["method"] == "notifications/cancelled":
            told.append(request.message["params"])
            return await request.answer(None, "202 Accepted")
        if moment == "in a body":
            await request.send(JSON + b"content-length: 100\r\n\r\n{")
        elif moment == "in a stream":
            await request.begin_events()
        begun.set()
        await request.gone()
        gone.set()

    async with connected(handler) as (client, _, _):
        opts: CallOptions = {"headers": MODERN if modern else LEGACY}
        async with anyio.create_task_group() as group:
            group.start_soon(client.send_raw_request, "tools/call", {}, opts)
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await gone.wait()
        await until(lambda: modern or told)
        expected = [] if modern else [{"requestId": 1, "reason": "caller cancelled"}]
        assert told == expected and not client._waiting


async def test_a_request_that_takes_too_long_is_told_of_and_says_so() -> None:
    async def handler(request: Request) -> None:
        if "id" not in request.message:
            return await request.answer(None, "202 Accepted")
        await anyio.sleep_forever()

    async with connected(handler) as (client, raw, _):
        with pytest.raises(RequestTimedOut, match="timed out"):
            await client.send_raw_request("tools/call", {}, {"timeout": 0.05, "headers": LEGACY})
        await until(lambda: any(b"cancelled" in request.body for request in raw.log))
        told = [request.message["params"] for request in raw.log if b"cancelled" in request.body]
        assert told == [{"requestId": 1, "reason": "timed out after 0.05 s"}]


async def test_a_notification_that_fails_is_sent_twice(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(replying()) as (client, raw, heard):
        await client.notify("notifications/roots/list_changed", None)
        assert [request.message["method"] for request in raw.log] == ["notifications/roots/list_changed"] * 2
        assert not heard.ended.is_set()
    assert "a message to 127.0.0.1 was lost" in caplog.text


async def test_the_end_of_a_connection_ends_what_is_in_flight() -> None:
    async def handler(request: Request) -> None:
        await anyio.sleep_forever()

    failed = list[MCPError]()
    async with raw_server(handler) as raw, http_client("up", raw.url, {}) as client:

        async def call() -> None:
            try:
                await client.send_raw_request("tools/call", {})
            except MCPError as fault:
                failed.append(fault)

        async with anyio.create_task_group() as group:
            async with running(client):
                for _ in range(3):
                    group.start_soon(call)
                await until(lambda: len(raw.log) == 3)
    assert len(failed) == 3 and all(says_ended(fault) for fault in failed)
