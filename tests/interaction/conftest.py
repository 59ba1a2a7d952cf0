"""One body, every transport, both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from tests.interaction.bridge import make
from tests.support.served import served as served_over_http
from tests.support.warm import Warm

from mcp_toolset import ToolsetServer

TRANSPORTS = ("memory", "stdio", "sse", "http")
WAYS = (*TRANSPORTS, "stdio-sdk")
"""`stdio-sdk`: both pipes of the bridge by the SDK's own transports, which are the fallback of ours."""
ERAS = ("legacy", "modern")
BRIDGE = Path(__file__).with_name("bridge.py")
ROOT = Path(__file__).parents[2]

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


UPSTREAMS = (
    "memory_modern",
    "stdio_legacy",
    "stdio_modern",
    "http_legacy",
    "http_modern",
    "sse_legacy",
    "sse_modern",
)


@pytest.fixture
def met(request: pytest.FixtureRequest, transport: str, era: str) -> list[str]:
    """The upstreams that the client of a transport and an era meets: all of them in `scripts/doors`.

    Elsewhere it is half of them, of both eras; each upstream meets every transport, and clients of both eras.
    """
    if request.config.getoption("--every-case"):
        return [*UPSTREAMS]
    column = TRANSPORTS.index(transport) + ERAS.index(era)
    return [name for number, name in enumerate(UPSTREAMS) if (number // 2 + column) % 2 == 0]


def way_of(params: Mapping[str, Any]) -> str:
    """The transport and the era of a case."""
    return f"{params['transport']} {params['era']}"


@dataclass(frozen=True)
class Served:
    """A bridge of this process, with what clients connect to."""

    server: ToolsetServer
    url: str

    def target(self, transport: str) -> Any:
        match transport:
            case "memory":
                return self.server.lowlevel
            case "sse":
                return sse_client(f"{self.url}/sse")
            case _:
                return f"{self.url}/mcp"


@pytest.fixture(scope="module")
async def served(anyio_backend: str) -> AsyncGenerator[Served]:
    """One bridge for all clients of a module, but those on stdio."""
    server = make()
    async with served_over_http(server, within=float("inf")) as url:
        yield Served(server, url)


@pytest.fixture(scope="module")
def connect(transport: str, era: str, served: Served, warm: Warm) -> Connect:
    """Connects clients to a bridge: to one that is shared or, over stdio, to one of their own."""

    @asynccontextmanager
    async def client(*, within: float = 90, **options: Any) -> AsyncGenerator[Client]:
        target = _on_stdio(transport, warm) if transport.startswith("stdio") else served.target(transport)
        with anyio.fail_after(within):
            async with Client(
                target, mode="legacy" if era == "legacy" else "auto", cache=None, **options
            ) as connected:
                yield connected

    return client


def _on_stdio(way: str, warm: Warm) -> StdioServerParameters:
    pipes = {"MCP_TOOLSET_PIPES": "sdk"} if way == "stdio-sdk" else {}
    command, *arguments = warm.command(str(BRIDGE))
    return StdioServerParameters(
        command=command,
        args=arguments,
        env={"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "MCP_TOOLSET_CACHE": "off", **pipes},
    )
