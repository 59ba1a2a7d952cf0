"""What is left of calls that failed: nothing, long before their deadlines."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from tests.faults.harness import tool
from tests.support.bounds import bounds
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import CallReport, RemoteToolset, Rules, Toolset, ToolsetServer
from mcp_toolset.errors import UpstreamProtocolError

pytestmark = pytest.mark.anyio

CALLS = 40
SIZE = 1_000_000
STAMP = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
DISCOVERED: dict[str, Any] = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "up", "version": "1"},
}


async def handler(request: Request) -> None:
    """A modern server whose tool answers with more than the bridge takes."""
    match request.message["method"]:
        case "server/discover":
            await request.answer(request.result({**STAMP, **DISCOVERED}))
        case "tools/list":
            await request.answer(request.result({**STAMP, "tools": [tool("long")]}))
        case _:
            await request.answer(b"x" * (2 * SIZE))


async def test_u113_answers_over_the_limit_are_not_kept_until_the_deadlines_of_their_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, http_message=SIZE)
    noted: list[CallReport] = []
    async with raw_server(handler) as raw:
        up = RemoteToolset(raw.url, name="up", protocol="modern")
        async with ToolsetServer(Toolset(up), rules=Rules(observers=[noted.append])) as server:

            async def call() -> None:
                with pytest.raises(UpstreamProtocolError, match="more than"):
                    await server.call_tool("long", {})

            await call()
            tracemalloc.start()
            try:
                for _ in range(CALLS):
                    await call()
                gc.collect()
                assert tracemalloc.get_traced_memory()[0] < CALLS * SIZE / 10
            finally:
                tracemalloc.stop()
    assert len(noted) == CALLS + 1
