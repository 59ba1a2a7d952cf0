"""Clients on HTTP that leave in the middle of a call, without a word (F27)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.faults.harness import mount, received, until
from tests.support.piped import handshake
from tests.support.served import served

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INFO = {"name": "leaver", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def reached(log: Path, seconds: float) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of a server that has `hang` mounted, which may take `seconds`."""
    async with served(ToolsetServer(Toolset(mount(log=str(log), timeout=seconds)))) as url:
        async with httpx2.AsyncClient(base_url=url, headers=ACCEPT) as client:
            yield client


def saw(log: Path, method: str) -> bool:
    return any(entry.get("method") == method for entry in received(log))


async def leave_in_a_call(
    client: httpx2.AsyncClient, log: Path, meta: dict[str, Any], headers: dict[str, str]
) -> None:
    params = {"name": "hang", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    async with anyio.create_task_group() as group:

        async def call() -> None:
            await client.post("/mcp", json=body, headers=headers)

        group.start_soon(call)
        await until(lambda: saw(log, "tools/call"))
        group.cancel_scope.cancel()


async def test_f27_a_modern_client_that_leaves_cancels_its_call(log: Path) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "hang"}
    async with reached(log, 60) as client:
        await leave_in_a_call(client, log, ENVELOPE, headers)
        await until(lambda: saw(log, "notifications/cancelled"))


async def test_f27_the_call_of_a_legacy_client_that_leaves_runs_to_its_deadline(log: Path) -> None:
    async with reached(log, 2) as client:
        begun = await client.post("/mcp", json=handshake(1))
        headers = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.post("/mcp", json=note, headers=headers)
        began = anyio.current_time()
        await leave_in_a_call(client, log, {}, headers)
        await until(lambda: saw(log, "notifications/cancelled"))
        assert anyio.current_time() - began >= 2
