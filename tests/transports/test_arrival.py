"""A request over HTTP that arrives slowly is ended; one whose answer takes its time is not (F33)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
import pytest
from mcp import Client
from starlette.types import Message
from tests.support.asking import text_of
from tests.support.bounds import bounds
from tests.support.served import port_of, read_by, served
from tests.transports.test_http_endpoint import HEADERS
from tests.transports.test_http_endpoint import call as modern_call
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.transports.http import arrival
from mcp_toolset.transports.http.arrival import Arrivals, ArrivingRequest

pytestmark = pytest.mark.anyio

LIMIT = 0.3
LENIENT = 10.0
"""For requests that do arrive, on however busy a machine."""


@tool
async def ponder() -> str:
    """Take longer than a request may take to arrive: by the clock of the loop, which is put forward."""
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = lambda: real() + LENIENT * 1.1
    # Whatever is due by then is ended by the time that this one is.
    await anyio.sleep(LIMIT / 20)
    return "pondered"


@tool
def hello() -> str:
    """Greet."""
    return "welcome"


@asynccontextmanager
async def serving(limit: float = LIMIT) -> AsyncGenerator[int]:
    async with served(ToolsetServer(Toolset(ponder, hello)), within=120, request_timeout=limit) as url:
        yield port_of(url)


async def until_closed(stream: anyio.abc.SocketStream) -> bytes:
    """All that the server says before it ends the connection."""
    said = b""
    try:
        while True:
            said += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return said


def head(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "content-length: 100", "", ""]).encode()


LEGACY = {name: value for name, value in HEADERS.items() if not name.startswith("mcp-")}


BODY = json.dumps(modern_call("hello")).encode()
HEAD = head("/mcp", {**HEADERS, "mcp-name": "hello"})
WHOLE = HEAD.replace(b"length: 100", b"length: %d" % len(BODY)) + BODY


@pytest.mark.parametrize("parser", [H11Protocol, AutoHTTPProtocol])
@pytest.mark.parametrize(
    "sent", [b"", HEAD[:20], HEAD, WHOLE], ids=["nothing", "half a head", "a head", "one request"]
)
async def test_u113_connections_without_a_request_leave_room_for_others(
    sent: bytes, parser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has as few as 256 descriptors, and one client can open thousands of connections."""
    monkeypatch.setattr(arrival, "most_connections", lambda: 4)
    read_by(parser, monkeypatch)
    async with serving(60) as port, AsyncExitStack() as stack:

        async def opened(first: bytes) -> anyio.abc.SocketStream:
            stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            if first:
                await stream.send(first)
            return stream

        async def answered(stream: anyio.abc.SocketStream) -> None:
            said = b""
            while b"welcome" not in said:
                said += await stream.receive()

        streams: list[anyio.abc.SocketStream] = []
        for _ in range(8):
            streams.append(await opened(sent))
            if sent is WHOLE:
                await answered(streams[-1])
        with anyio.fail_after(20):
            for stream in streams[:4]:
                await until_closed(stream)
        await answered(await opened(WHOLE))


@pytest.mark.parametrize(
    ("path", "headers"), [("/mcp", HEADERS), ("/mcp", LEGACY), ("/messages/?session_id=0", LEGACY)]
)
async def test_f33_a_body_that_does_not_arrive_in_time_is_refused(path: str, headers: dict[str, str]) -> None:
    async with serving() as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head(path, headers) + b"{")
            status = (await until_closed(stream)).split(b"\r\n")[0]
        # A session that is not there can be told before the body.
        assert status.split()[1] in ((b"408",) if path == "/mcp" else (b"408", b"400", b"404"))


async def test_f33_a_body_that_drips_is_refused_however_long_it_would_take() -> None:
    async def drip(stream: anyio.abc.SocketStream) -> None:
        with suppress(anyio.BrokenResourceError):
            while True:
                await stream.send(b" ")
                await anyio.sleep(LIMIT / 20)

    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head("/mcp", LEGACY).replace(b"length: 100", b"length: 100000"))
        async with anyio.create_task_group() as group:
            group.start_soon(drip, stream)
            said = await until_closed(stream)
            group.cancel_scope.cancel()
        # A byte that comes after the refusal makes the kernel throw the refusal away.
        assert not said or b" 408 " in said


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_u113_a_body_is_to_arrive_in_time_whatever_the_method(verb: str) -> None:
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head("/mcp", LEGACY).replace(b"POST", verb.encode()) + b"{")
        assert b" 408 " in await until_closed(stream)


@pytest.mark.parametrize("verb", ["POST", "GET"])
async def test_u113_bodies_that_arrive_slowly_take_no_more_than_a_budget(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, arriving_bytes=1_000_000)
    begun = head("/mcp", LEGACY).replace(b"length: 100", b"length: 300001").replace(b"POST", verb.encode())
    async with serving(60) as port, AsyncExitStack() as stack:
        streams: list[anyio.abc.SocketStream] = []
        for _ in range(9):
            streams.append(await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)))
            await streams[-1].send(begun + b" " * 300_000)
        with anyio.fail_after(30):
            for stream in streams[:6]:
                assert b" 408 " in await until_closed(stream)
            # The last ones had room.
            for stream in streams[6:]:
                await stream.send(b" ")
                assert b" 40" in (said := await stream.receive())
                assert b" 408 " not in said


@pytest.mark.parametrize("said", [b"", b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n"])
async def test_f33_a_head_that_does_not_arrive_in_time_ends_the_connection(said: bytes) -> None:
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        if said:
            await stream.send(said)
        assert await until_closed(stream) == b""


async def test_f33_the_head_of_a_second_request_on_a_connection_has_no_more_time() -> None:
    async with serving() as port:
        answered = False
        while not answered:
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                # On a busy machine the first head may be late as well: then it is tried again.
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.send(b"GET /none HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    assert b" 404 " in await stream.receive()
                    answered = True
                    await stream.send(b"GET /none HTTP/1.1\r\n")
                    await until_closed(stream)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_f33_an_answer_may_take_its_time_and_so_may_a_stream(mode: str) -> None:
    address = "http://127.0.0.1:{}/mcp"
    async with serving(LENIENT) as port, Client(address.format(port), mode=mode, cache=None) as client:
        assert text_of(await client.call_tool("ponder", {})) == "pondered"


@pytest.mark.parametrize(("arrived", "status"), [(True, 503), (False, 408)])
async def test_f44_a_request_that_a_stop_cuts_off_is_not_told_that_it_was_slow(
    arrived: bool, status: int
) -> None:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": not arrived}

    async def send(message: Message) -> None:
        said.append(message)

    request = ArrivingRequest(has_body=True, receive=receive, send=send, arrivals=Arrivals(60))
    with anyio.fail_after(30), request.scope:
        await request.receive()
        request.scope.cancel()
        await anyio.sleep_forever()
    await request.end()
    assert [message.get("status") for message in said] == [status, None]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_in_which_nothing_can_arrive_is_refused(seconds: float) -> None:
    with pytest.raises(DefinitionError, match="request_timeout"):
        ToolsetServer(Toolset(ponder, hello)).http_app(request_timeout=seconds)
