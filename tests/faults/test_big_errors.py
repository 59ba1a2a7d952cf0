"""Errors and log messages of megabytes from a mount with secrets: cut, and without a secret in the rest."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, mount
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer
from mcp_toolset.errors import UpstreamProtocolError

pytestmark = pytest.mark.anyio

TOKEN = "tok-8d1f00c7-55aa"
MB = 1024 * 1024
BEGUN = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}}}


def blocks(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": True}


@asynccontextmanager
async def failing(answer: Callable[[Request], Awaitable[None]]) -> AsyncGenerator[ToolsetServer]:
    """A mounted server that is sent a token, and answers calls so, beside another one."""

    async def handler(request: Request) -> None:
        if not request.body or "id" not in request.message:
            await request.answer(None, "405 Method Not Allowed" if request.verb == "GET" else "202 Accepted")
        elif request.message["method"] == "tools/call":
            await answer(request)
        else:
            listed = [{"name": "big", "inputSchema": {"type": "object"}}]
            info = {"serverInfo": {"name": "up", "version": "1"}}
            await request.answer(request.result({**BEGUN, **info, "tools": listed}))

    async with raw_server(handler) as raw:
        headers = {"authorization": f"Bearer {TOKEN}"}
        up = RemoteToolset(raw.url, name="up", protocol="legacy", headers=headers)
        async with ToolsetServer(Toolset(up, mount("other"))) as server:
            with anyio.fail_after(SOON):
                yield server


WIRES: dict[str, dict[str, Any]] = {
    "a long text": blocks(f"begin {TOKEN} " + "tok-8d1f " * MB),
    "a secret at the cut": blocks("x" * (MB - 5) + TOKEN * 1000),
    "many texts": blocks(f"begin {TOKEN}", *["a"] * 100_000),
    "a long structure": {**blocks(f"begin {TOKEN}"), "structuredContent": {"all": [TOKEN] * 100_000}},
    "many names": {
        **blocks(f"begin {TOKEN}"),
        "structuredContent": {f"{n}-{TOKEN}": 1 for n in range(60_000)},
    },
}


@pytest.mark.parametrize("kind", WIRES)
async def test_u113_an_error_of_megabytes_is_cut_before_secrets_are_looked_for(kind: str) -> None:
    async def answer(request: Request) -> None:
        await request.answer(request.result(WIRES[kind]))

    async with failing(answer) as server:
        failed = await server.call_tool("big", {})
        assert not (await server.call_tool("echo", {})).is_error
    said = json.dumps(failed.wire, ensure_ascii=False)
    assert failed.is_error
    assert "left out" in said
    assert "begin ***" in said or "xxx" in said
    assert TOKEN[:9] + "-" not in said
    assert "tok-8d1f0" not in said
    assert len(said) < 2 * MB


async def test_u113_an_error_of_ordinary_size_is_whole() -> None:
    async def answer(request: Request) -> None:
        wire = {**blocks(f"with {TOKEN} " + "line\n" * 40_000), "structuredContent": {"why": TOKEN}}
        await request.answer(request.result(wire))

    async with failing(answer) as server:
        failed = await server.call_tool("big", {})
    assert failed.text == "with *** " + "line\n" * 40_000
    assert failed.wire["structuredContent"] == {"why": "***"}


async def test_u113_what_an_error_says_beside_its_message_is_left_out_if_it_has_megabytes() -> None:
    async def answer(request: Request) -> None:
        error = {"code": -31999, "message": f"no {TOKEN}", "data": [TOKEN] * 100_000}
        await request.answer({"jsonrpc": "2.0", "id": request.message["id"], "error": error})

    async with failing(answer) as server:
        with pytest.raises(UpstreamProtocolError, match=r"no \*\*\*") as refused:
            await server.call_tool("big", {})
    assert "left out" in str(refused.value.data)


class Hearing(ToolContext):
    """A caller that takes log messages."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def notify(self, method: str, params: Any) -> None:
        self.heard.append(params)


async def test_u113_of_a_log_message_of_megabytes_its_level_is_passed_on() -> None:
    async def answer(request: Request) -> None:
        said = [{"level": "info", "data": [TOKEN] * 100_000}, {"level": "info", "data": f"last {TOKEN}"}]
        await request.begin_events()
        for params in said:
            await request.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        await request.event(request.result({"content": []}))
        await request.chunk(b"")

    caller = Hearing()
    async with failing(answer) as server:
        await server.call_tool("big", {}, context=caller)
    assert [params["level"] for params in caller.heard] == ["info", "info"]
    assert "left out" in caller.heard[0]["data"]
    assert caller.heard[1]["data"] == "last ***"
