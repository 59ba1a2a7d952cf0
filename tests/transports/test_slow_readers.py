"""A client over HTTP or SSE that stops reading holds its own call back, in bounded memory (F29)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from tests.support.asking import text_of
from tests.support.piped import handshake
from tests.support.served import served
from tests.transports.test_http_endpoint import HEADERS, META
from uvicorn.protocols.http.flow_control import FlowControl

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.transports.http.sse import EventStream

pytestmark = pytest.mark.anyio

SIZE = 64 * 1024
REPORTS = 500
"""32 MB in all: more than the kernel takes for a connection, and than anybody here may hold."""

HELD = 24 * 1024 * 1024
"""Bytes that may be on their way: what the kernel holds of one connection, and a bounded queue."""


class Flood:
    """A tool that reports more than its client reads.

    Attributes:
        sent: Reports that it has sent.
        waits: Set when the server waits for room for a further report, or there is none left.
        done: Set when it has ended.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.waits, self.done = anyio.Event(), anyio.Event()

    async def flood(self, context: ToolContext) -> str:
        """Report at length."""
        for n in range(REPORTS):
            await context.progress(n + 1, REPORTS, "x" * SIZE)
            self.sent = n + 1
        self.done.set()
        self.waits.set()
        return "done"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


class Reader:
    """Reads the events of a stream when it is asked to."""

    def __init__(self, response: httpx2.Response) -> None:
        self.lines = response.aiter_lines()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self.lines:
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


PLAIN = {name: value for name, value in HEADERS.items() if not name.startswith("mcp-")}
INITIALIZE = handshake()


def call(meta: dict[str, Any]) -> dict[str, Any]:
    params = {"name": "flood", "arguments": {}, "_meta": {**meta, "progressToken": 7}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def modern(http: httpx2.AsyncClient, stack: AsyncExitStack) -> Reader:
    headers = {**HEADERS, "mcp-name": "flood"}
    del headers["host"]
    return Reader(
        await stack.enter_async_context(http.stream("POST", "/mcp", headers=headers, json=call(META)))
    )


async def legacy(http: httpx2.AsyncClient, stack: AsyncExitStack) -> Reader:
    headers = {name: value for name, value in PLAIN.items() if name != "host"}
    begun = await http.post("/mcp", headers=headers, json=INITIALIZE)
    headers |= {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    await http.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    return Reader(
        await stack.enter_async_context(http.stream("POST", "/mcp", headers=headers, json=call({})))
    )


async def sse(http: httpx2.AsyncClient, stack: AsyncExitStack) -> Reader:
    reader = Reader(await stack.enter_async_context(http.stream("GET", "/sse")))
    address = ""
    while not address.startswith("data: /"):
        address = await anext(reader.lines)
    address = address.removeprefix("data: ")
    await http.post(address, json=INITIALIZE)
    assert (await anext(reader.messages()))["id"] == 0
    await http.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    await http.post(address, json=call({}))
    return reader


def watch(flood: Flood, monkeypatch: pytest.MonkeyPatch, way: Any) -> None:
    """Tell `flood` when its reports wait: in uvicorn's buffer of a connection, or in a stream's queue."""
    drain, room = FlowControl.drain, EventStream.room

    async def noted_drain(flow: FlowControl) -> None:
        if flow.write_paused and flood.sent:
            flood.waits.set()
        await drain(flow)

    async def noted_room(stream: EventStream) -> None:
        if not stream.has_room and flood.sent:
            flood.waits.set()
        await room(stream)

    if way is sse:
        monkeypatch.setattr(EventStream, "room", noted_room)
    else:
        monkeypatch.setattr(FlowControl, "drain", noted_drain)


@pytest.mark.parametrize("way", [modern, legacy, sse])
async def test_f29_who_does_not_read_is_held_back_and_then_gets_everything_in_order(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood = Flood()
    watch(flood, monkeypatch, way)
    server = ToolsetServer(Toolset(echo, tool(flood.flood)))
    async with served(server, within=120) as url, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=None))
        reader = await way(http, stack)
        await flood.waits.wait()
        assert not flood.done.is_set() and 0 < flood.sent * SIZE < HELD
        # Nobody else waits for it.
        async with Client(f"{url}/mcp", mode="legacy", cache=None) as other:
            assert text_of(await other.call_tool("echo", {"text": "here"})) == "here"
        assert not flood.done.is_set() and flood.sent * SIZE < HELD
        seen = 0
        async for message in reader.messages():
            if "result" in message:
                break
            seen += 1
            assert message["params"]["progress"] == seen
        assert seen == REPORTS and message["result"]["content"][0]["text"] == "done"
