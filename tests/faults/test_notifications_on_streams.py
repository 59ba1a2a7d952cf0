"""Calls with a stream each: what may be of several of them is read before any of their results."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from tests.faults.harness import mount, specials
from tests.support.bounds import bounds

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
PARTIES = 3
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


class Session:
    """A client of 2025-11-25 over HTTP, to the byte; it notes what it reads, in order."""

    def __init__(self, app: Starlette, *, pongs: bool = True) -> None:
        self.heard: list[Any] = []
        self.pinged = anyio.Event()
        self.pong = anyio.Event()
        self._app = app
        self._pongs = pongs
        self._headers = [
            (b"host", b"127.0.0.1:8000"),
            (b"accept", b"application/json, text/event-stream"),
            (b"content-type", b"application/json"),
            (b"mcp-protocol-version", b"2025-11-25"),
        ]

    async def post(self, **message: Any) -> None:
        """Send a message, and note what comes on its own stream until that ends."""
        body = [{"type": "http.request", "body": json.dumps({"jsonrpc": "2.0", **message}).encode()}]
        scope = {
            **{"type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "root_path": ""},
            **{"query_string": b"", "headers": self._headers, "http_version": "1.1", "scheme": "http"},
            **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {}},
        }

        async def receive() -> Any:
            if not body:
                await anyio.sleep_forever()
            return body.pop()

        async def send(event: Any) -> None:
            for name, value in event.get("headers", ()):
                if name == b"mcp-session-id" and (name, value) not in self._headers:
                    self._headers.append((name, value))
            for line in event.get("body", b"").splitlines():
                if (data := line.removeprefix(b"data: ")).startswith(b"{"):
                    await self._hear(json.loads(data))

        await self._app(scope, receive, send)

    async def _hear(self, message: Any) -> None:
        match message.get("method"):
            case "ping":
                self.pinged.set()
                if self._pongs:
                    self._answering.start_soon(self._answer, message["id"])
            case "notifications/message":
                self.heard.append(message["params"]["data"])
            case None:
                assert "result" in message, message
                self.heard.append(message["id"])
            case _:
                pass

    async def _answer(self, number: Any) -> None:
        await self.pong.wait()
        await self.post(id=number, result={})

    async def call(self, number: str, name: str, **arguments: Any) -> None:
        await self.post(id=number, method="tools/call", params={"name": name, "arguments": arguments})

    @asynccontextmanager
    async def begun(self) -> AsyncGenerator[Session]:
        await self.post(id="hello", method="initialize", params=HELLO)
        await self.post(method="notifications/initialized")
        self.heard.clear()
        async with anyio.create_task_group() as self._answering:
            yield self


@pytest.fixture
async def app() -> AsyncIterator[Starlette]:
    server = ToolsetServer(Toolset(mount(tools=specials("meet"))))
    app = server.http_app()
    with anyio.fail_after(40):
        async with server, app.router.lifespan_context(app):
            yield app


async def test_u70_a_result_waits_until_what_may_be_of_its_call_is_read_on_another_stream(
    app: Starlette,
) -> None:
    async with Session(app).begun() as session, anyio.create_task_group() as group:
        for number in range(PARTIES):
            group.start_soon(partial(session.call, f"met {number}", "meet", parties=PARTIES))
        await session.pinged.wait()
        # All results were read before this one, which nothing came before.
        await session.call("after", "echo")
        assert session.heard == ["said", "after"]
        session.pong.set()
    assert session.heard[:2] == ["said", "after"]
    assert sorted(session.heard[2:]) == [f"met {number}" for number in range(PARTIES)]


async def test_u70_a_client_that_answers_no_pings_is_waited_for_once(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, report_timeout=0.05)
    async with Session(app, pongs=False).begun() as session:
        for first in (0, PARTIES):
            async with anyio.create_task_group() as group:
                for number in range(first, first + PARTIES):
                    call = (f"met {number}", "meet")
                    group.start_soon(
                        lambda call=call, first=first: session.call(*call, parties=first + PARTIES)
                    )
            assert session.pinged.is_set() == (first == 0)
            session.pinged = anyio.Event()
    assert session.heard.count("said") == 2


async def test_u70_a_client_with_one_call_is_not_pinged(app: Starlette) -> None:
    async with Session(app).begun() as session:
        await session.call("met", "meet", parties=1)
    assert session.heard == ["said", "met"]
    assert not session.pinged.is_set()
