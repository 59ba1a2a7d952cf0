"""The bridge between programs of others, reached over a real wire in both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from mcp import Client
from tests.support.served import served

from mcp_toolset import Toolset, ToolsetServer

MODES = {"legacy": "legacy", "modern": "2026-07-28"}

Bridged = Callable[[Toolset], AbstractAsyncContextManager[Client]]


@pytest.fixture(params=MODES)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def bridged(era: str) -> Bridged:
    """Connects a client of the era to a bridge that serves a toolset."""

    @asynccontextmanager
    async def connect(tools: Toolset) -> AsyncGenerator[Client]:
        async with (
            served(ToolsetServer(tools), within=30) as address,
            Client(f"{address}/mcp", mode=MODES[era], cache=None) as client,
        ):
            yield client

    return connect
