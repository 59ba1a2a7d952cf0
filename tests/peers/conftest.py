"""The bridge between programs of others, reached over a real wire in both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest
from mcp import Client

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.transports.http.app import bound_socket, run_app

MODES = {"legacy": "legacy", "modern": "2026-07-28"}

Bridged = Callable[[Toolset], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def listening(server: ToolsetServer) -> AsyncGenerator[str]:
    """Serve over HTTP on a free loopback port for the length of a block; yields the base address."""
    async with server:
        with bound_socket("127.0.0.1", 0) as bound:
            async with anyio.create_task_group() as group:
                group.start_soon(run_app, server.http_app(), bound)
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
                group.cancel_scope.cancel()


@pytest.fixture(params=MODES)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bridged(era: str) -> Bridged:
    """Connects a client of the era to a bridge that serves a toolset."""

    @asynccontextmanager
    async def connect(tools: Toolset) -> AsyncGenerator[Client]:
        with anyio.fail_after(30):
            async with (
                listening(ToolsetServer(tools)) as address,
                Client(f"{address}/mcp", mode=MODES[era], cache=None) as client,
            ):
                yield client

    return connect
