"""An HTTP server written by hand, of which each test says what bytes it sends, and the client under test.

The tests of the client take what is inside of the package from here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2

from mcp_toolset.protocol.dispatch import DispatchContext, Dispatcher
from mcp_toolset.protocol.json_rpc import MCPError, RequestTimedOut, says_broke_off, says_ended
from mcp_toolset.transports.allowance import Allowance
from mcp_toolset.transports.carrier import Carrier
from mcp_toolset.transports.event_stream import Event, EventParser
from mcp_toolset.transports.http_client import HttpClient, http_client
from mcp_toolset.transports.pacing import Meter
from mcp_toolset.transports.sse_client import sse_client

__all__ = [
    "Allowance",
    "Carrier",
    "Event",
    "EventParser",
    "HttpClient",
    "MCPError",
    "Meter",
    "RequestTimedOut",
    "http_client",
    "says_broke_off",
    "says_ended",
    "sse_client",
]

SOON = 30
LEGACY = {"mcp-protocol-version": "2025-11-25"}
MODERN = {"mcp-protocol-version": "2026-07-28"}
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"ok": True}}


@dataclass
class Request:
    """One request as it came, and the connection to answer on."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self, body: object = None, status: str = "200 OK", **headers: str) -> None:
        """Send a whole reply: bytes, or an object as JSON."""
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"content_type": "application/json", **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, f"content-length: {len(sent)}", "", ""])
        await self.send(head.encode() + sent)

    async def begin_events(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: object) -> None:
        await self.chunk(b"data: %b\n\n" % json.dumps(message).encode())

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        assert await self.reader.read(1) == b""

    def result(self, result: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to this request."""
        return {"jsonrpc": "2.0", "id": self.message.get("id"), "result": result or {"ok": True}}


Handler = Callable[[Request], Awaitable[None]]


@dataclass
class Raw:
    """The server; `log` has the requests that came."""

    handler: Handler
    url: str = ""
    log: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    open: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict[Any, Any])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        try:
            await self.converse(reader, writer, self.connections)
        finally:
            del self.open[task]
            writer.transport.abort()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                verb, path, _ = head[0].split(" ")
                pairs = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(verb, path, headers, body, number, reader, writer)
                self.log.append(request)
                await self.handler(request)
                if writer.is_closing():
                    # What was written is sent before the connection is closed.
                    return await writer.wait_closed()


@asynccontextmanager
async def raw_server(handler: Handler) -> AsyncGenerator[Raw]:
    """A server that handles each request so; its handlers end with the block."""
    raw = Raw(handler)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, limit=2**20)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield raw
    finally:
        server.close()
        tasks = list(raw.open)
        for task in tasks:
            task.cancel()
        if tasks:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks, timeout=SOON)


@dataclass
class Heard:
    """What the server has said besides answers."""

    notes: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    asked: list[str] = field(default_factory=list[str])
    fault: Exception | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def on_request(self, context: DispatchContext, method: str, params: Any) -> dict[str, Any]:
        self.asked.append(method)
        return {"of": method}

    async def on_notify(self, context: DispatchContext, method: str, params: Any) -> None:
        raise AssertionError("all is taken in order")

    def intercept(self, method: str, params: Any) -> bool:
        self.notes.append((method, params))
        return True


@asynccontextmanager
async def running(dispatcher: Dispatcher) -> AsyncGenerator[Heard]:
    """The dispatcher, run for the length of a block."""
    heard = Heard()

    async def run(*, task_status: Any) -> None:
        try:
            await dispatcher.run(heard.on_request, heard.on_notify, heard.intercept, task_status=task_status)
        except Exception as fault:
            heard.fault = fault
        finally:
            heard.ended.set()

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as group:
            await group.start(run)
            yield heard
            group.cancel_scope.cancel()


@asynccontextmanager
async def connected(
    handler: Handler, auth: httpx2.Auth | None = None, headers: dict[str, str] | None = None
) -> AsyncGenerator[tuple[HttpClient, Raw, Heard]]:
    """A client of such a server, running; with `auth`, httpx2 carries its requests."""
    async with (
        raw_server(handler) as raw,
        http_client("up", raw.url, headers or {"x-key": "k"}, auth) as client,
    ):
        async with running(client) as heard:
            yield client, raw, heard


def replying(*parts: bytes) -> Handler:
    """A server that sends these bytes and closes."""

    async def handler(request: Request) -> None:
        await request.send(*parts)
        request.writer.close()

    return handler
