"""Servers over HTTP on a free port of this machine: the one place that knows how they listen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from socket import socket
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from mcp_toolset import ToolsetServer
from mcp_toolset.transports.http import app as http_app
from mcp_toolset.transports.http.app import bound_socket, run_app
from mcp_toolset.transports.http.arrival import reading

if TYPE_CHECKING:
    import pytest


@asynccontextmanager
async def listening(app: Any) -> AsyncGenerator[str]:
    """Serve an application (`ToolsetServer.http_app`) for the length of a block; yields its address."""
    with bound_socket("127.0.0.1", 0) as bound:
        async with anyio.create_task_group() as group:
            group.start_soon(run_app, app, bound)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            group.cancel_scope.cancel()


@asynccontextmanager
async def served(server: ToolsetServer, *, within: float = 60, **options: Any) -> AsyncGenerator[str]:
    """Open a server and serve it for the length of a block, which may take so long; yields its address."""
    with anyio.fail_after(within):
        async with server, listening(server.http_app(**options)) as url:
            yield url


class _Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def hosted(app: Any) -> AsyncGenerator[str]:
    """Run an application of others by a plain uvicorn for the length of a block; yields its address."""
    with free_socket() as bound:
        server = _Quiet(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))

        async def serve() -> None:
            with anyio.CancelScope(shield=True):
                await server.serve(sockets=[bound])

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            try:
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            finally:
                server.should_exit = True


def read_by(parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read requests to servers with a parser of uvicorn, as where the other one is not installed."""
    monkeypatch.setattr(http_app.arrival, "reading", lambda seconds: reading(seconds, parser))


def free_socket() -> AbstractContextManager[socket]:
    """A socket that listens on a free port, and of which nobody takes connections."""
    return bound_socket("127.0.0.1", 0)


def port_of(url: str) -> int:
    """The port of an address, for clients that write bytes."""
    return int(url.rpartition(":")[2])
