"""`settling`: what is reported once all mounted servers of a server are ready or have failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.announcement import in_terminal, summary, tell

__all__ = ["settling"]


@asynccontextmanager
async def settling(
    server: ToolsetServer, told: Callable[[ToolsetServer], None] | None
) -> AsyncGenerator[anyio.Event]:
    """Report the state of the servers once all are ready or have failed, and set the event."""
    called = anyio.Event()
    is_starting = any(status.state == "starting" for status in server.statuses().values())
    if told is not None and not is_starting:
        told(server)
    if told is None or not is_starting:
        called.set()
    late = in_terminal() and is_starting
    if called.is_set() and not late:
        yield called
        return

    async def settle() -> None:
        await server.settled()
        if told is not None:
            told(server)
            called.set()
        if late:
            tell(f"now serving {summary(server)}")

    async with anyio.create_task_group() as group:
        group.start_soon(settle)
        yield called
        group.cancel_scope.cancel()
