"""One body, every transport, both protocol eras."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from tests.interaction.bridge import make

from mcp_toolset.bridge.http import bound_socket, run_app
from mcp_toolset.bridge.pipes import PIPES

TRANSPORTS = ("memory", "stdio", "sse", "http")
WAYS = (*TRANSPORTS, "stdio-sdk")
"""`stdio-sdk`: both pipes of the bridge by the SDK's own transports, which are the fallback of ours."""
ERAS = ("legacy", "modern")
BRIDGE = Path(__file__).with_name("bridge.py")
ROOT = Path(__file__).parents[2]

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=TRANSPORTS, scope="module")
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
async def shared(transport: str) -> AsyncIterator[Callable[[], Any]]:
    """One bridge for all tests of a module over one transport; over stdio each client starts its own."""
    async with _served(transport) as target:
        yield target


@pytest.fixture
def connect(shared: Callable[[], Any], era: str) -> Connect:
    """Connects clients to a bridge that other tests have used and will use."""
    return _connecting(shared, era)


@pytest.fixture
async def connect_alone(transport: str, era: str) -> AsyncIterator[Connect]:
    """Connects clients to a bridge that lives as long as the test, which may change it."""
    async with _served(transport) as target:
        yield _connecting(target, era)


def _connecting(target: Callable[[], Any], era: str) -> Connect:
    mode = "legacy" if era == "legacy" else "auto"

    @asynccontextmanager
    async def client(**options: Any) -> AsyncGenerator[Client]:
        with anyio.fail_after(90):
            async with Client(target(), mode=mode, cache=None, **options) as connected:
                yield connected

    return client


@asynccontextmanager
async def _served(transport: str) -> AsyncGenerator[Callable[[], Any]]:
    if transport.startswith("stdio"):
        pipes = {PIPES: "sdk"} if transport == "stdio-sdk" else {}
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[str(BRIDGE)],
            env={"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "MCP_TOOLSET_CACHE": "off", **pipes},
        )
        yield lambda: parameters
        return
    server = make()
    async with server:
        if transport == "memory":
            yield lambda: server.lowlevel
            return
        with bound_socket("127.0.0.1", 0) as listening:
            port = listening.getsockname()[1]
            async with anyio.create_task_group() as group:
                group.start_soon(run_app, server.http_app(), listening)
                url = f"http://127.0.0.1:{port}"
                yield lambda: sse_client(f"{url}/sse") if transport == "sse" else f"{url}/mcp"
                group.cancel_scope.cancel()
