"""What is posted by modern clients is answered as the SDK's endpoint would answer it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message
from tests.support.bounds import bounds

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.transports.http.endpoint import HttpEndpoint

pytestmark = pytest.mark.anyio

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "host": "127.0.0.1:8000",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "add",
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def count(context: ToolContext) -> str:
    """Report three steps."""
    for step in range(3):
        await context.progress(step + 1, 3, "counting")
    return "done"


@tool
async def wait() -> str:
    """Wait for ever."""
    ENDED.append("started")
    try:
        await anyio.sleep_forever()
    finally:
        ENDED.append("cancelled")
    return "never"


ENDED: list[str] = []


def call(name: str = "add", arguments: Any = None, **more: Any) -> dict[str, Any]:
    given = {"a": 1, "b": 2} if arguments is None and name == "add" else arguments or {}
    params = {"name": name, "arguments": given, "_meta": META, **more}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.fixture
async def server() -> AsyncIterator[ToolsetServer]:
    ENDED.clear()
    async with ToolsetServer(Toolset(add, count, wait)) as server:
        yield server


@pytest.fixture
async def app(server: ToolsetServer) -> AsyncIterator[Starlette]:
    built = server.http_app()
    async with built.router.lifespan_context(built):
        yield built


@asynccontextmanager
async def sdk_app(server: ToolsetServer) -> AsyncGenerator[Starlette]:
    """The same server behind the SDK's endpoint."""
    names = TransportSecuritySettings(
        allowed_hosts=["127.0.0.1:*", "localhost:*"], allowed_origins=["http://127.0.0.1:*"]
    )
    built = server.lowlevel.streamable_http_app(transport_security=names)
    async with built.router.lifespan_context(built):
        yield built


def endpoint(app: Starlette) -> HttpEndpoint:
    for route in app.routes:
        if isinstance(route, Route) and isinstance(route.app, HttpEndpoint):
            return route.app
    raise AssertionError("the application has no endpoint of streamable HTTP")


async def posted(app: Starlette, headers: dict[str, str] | list[tuple[str, str]], body: bytes) -> Any:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        with anyio.fail_after(30):
            return await client.post("/mcp", headers=headers, content=body)


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in HEADERS.items() if key != name}


def body_of(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


LIST = {"jsonrpc": "2.0", "id": "l", "method": "tools/list", "params": {"_meta": META}}
LISTING = {**without("mcp-name"), "mcp-method": "tools/list"}
CASES: dict[str, tuple[Any, Any]] = {
    "a call": (HEADERS, call()),
    "an id of text": (HEADERS, {**call(), "id": "one"}),
    "a list": (LISTING, LIST),
    "a list with a cursor": (LISTING, {**LIST, "params": {"_meta": META, "cursor": "x"}}),
    "unknown tool": ({**HEADERS, "mcp-name": "nope"}, call("nope")),
    "wrong arguments": (HEADERS, call("add", {"a": "x"})),
    "arguments that are none": (HEADERS, call("add", [1])),
    "no name": (without("mcp-name"), {**call(), "params": {"_meta": META}}),
    "another name in the header": ({**HEADERS, "mcp-name": "other"}, call()),
    "another method in the header": ({**HEADERS, "mcp-method": "tools/list"}, call()),
    "another version in the header": ({**HEADERS, "mcp-protocol-version": "2099-01-01"}, call()),
    "no method header": (without("mcp-method"), call()),
    "no version in the body": (HEADERS, call(_meta={})),
    "capabilities that are none": (
        HEADERS,
        call(_meta={**META, "io.modelcontextprotocol/clientCapabilities": 7}),
    ),
    "no accept": ({**HEADERS, "accept": "text/html"}, call()),
    "accepts anything": ({**HEADERS, "accept": "*/*"}, call()),
    "accepts JSON only": ({**HEADERS, "accept": "application/json"}, call()),
    "another content type": ({**HEADERS, "content-type": "text/plain"}, call()),
    "a header twice": ([*HEADERS.items(), ("mcp-name", "add")], call()),
    "a parameter header": ({**HEADERS, "mcp-param-a": "1"}, call()),
    "no JSON": (HEADERS, b"{"),
    "no UTF-8": (HEADERS, b"\xff"),
    "deep": (HEADERS, b"[" * 5000),
    "a batch": (HEADERS, [call()]),
    "an id that is none": (HEADERS, {**call(), "id": None}),
    "an id of a fraction": (HEADERS, {**call(), "id": 1.5}),
    "a notification": (HEADERS, {"jsonrpc": "2.0", "method": "notifications/initialized"}),
    "too big": (HEADERS, call("add", {"a": 1, "b": 2, "c": "x" * 5_000_000})),
    "a foreign host": ({**HEADERS, "host": "evil.example"}, call()),
    "a foreign origin": ({**HEADERS, "origin": "https://evil.example"}, call()),
    "an origin of its own": ({**HEADERS, "origin": "http://127.0.0.1:8000"}, call()),
    "another method": (
        {**without("mcp-name"), "mcp-method": "server/discover"},
        {**LIST, "method": "server/discover"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_f31_f33_an_answer_is_the_one_that_the_sdk_would_give(
    server: ToolsetServer, app: Starlette, case: str
) -> None:
    headers, message = CASES[case]
    own = await posted(app, headers, body_of(message))
    async with sdk_app(server) as theirs:
        plain = await posted(theirs, headers, body_of(message))
    assert own.status_code == plain.status_code
    assert own.headers.get("content-type") == plain.headers.get("content-type")
    if plain.headers.get("content-type") == "application/json":
        assert own.json() == plain.json()
    elif plain.status_code in (403, 421):
        # Ours goes on with the option that allows the name.
        assert own.content.startswith(plain.content + b": ")
    else:
        assert own.content == plain.content


async def test_a_middleware_of_the_hosts_sees_every_request(server: ToolsetServer, app: Starlette) -> None:
    seen: list[str] = []

    async def look(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    middleware: Any = server.lowlevel.middleware
    middleware.append(look)
    headers, message = CASES["a list with a cursor"]
    await posted(app, headers, body_of(message))
    await posted(app, LISTING, body_of(LIST))
    middleware.insert(0, middleware.pop())
    await posted(app, LISTING, body_of(LIST))
    assert seen == ["tools/list"] * 3


async def test_progress_turns_the_answer_into_a_stream_in_order(app: Starlette) -> None:
    headers = {**HEADERS, "mcp-name": "count"}
    answer = await posted(app, headers, body_of(call("count", _meta={**META, "progressToken": "t"})))
    assert answer.headers["content-type"].startswith("text/event-stream")
    sent = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [message.get("params", {}).get("progress") for message in sent] == [1, 2, 3, None]
    assert sent[-1]["result"]["content"][0]["text"] == "done"


class Wire:
    """An ASGI exchange by hand: the client can leave in the middle of it."""

    def __init__(self, message: Any, headers: dict[str, str]) -> None:
        body = body_of(message)
        raw = [(key.encode(), value.encode()) for key, value in headers.items()]
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [*raw, (b"content-length", b"%d" % len(body))],
        }
        self.sent: list[Message] = []
        self.gone = anyio.Event()
        self.unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> Message:
        if self.unread:
            return self.unread.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def test_f27_a_client_that_leaves_cancels_its_call(app: Starlette) -> None:
    wire = Wire(call("wait"), {**HEADERS, "mcp-name": "wait"})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            while not ENDED:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            wire.gone.set()
    assert ENDED == ["started", "cancelled"]
    assert wire.sent == []


async def test_a_silent_call_is_kept_alive_by_comments(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, ping_interval=0.02)
    wire = Wire(call("wait"), {**HEADERS, "mcp-name": "wait"})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            while len(wire.sent) < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            wire.gone.set()
    assert dict(wire.sent[0]["headers"])[b"content-type"] == b"text/event-stream"
    assert wire.sent[1]["body"] == wire.sent[2]["body"] == b": ping\r\n\r\n"
