"""The SDK's HTTP endpoints and its legacy sessions over HTTP: which are open or idle, and how one is ended.

The table of the session manager is private.
"""

from __future__ import annotations

from collections.abc import Container
from http import HTTPStatus
from math import isinf

from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager as SessionManager
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE as MAX_BODY
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Scope

__all__ = [
    "MAX_BODY",
    "REQUEST_CANCELLED",
    "SessionManager",
    "SseServerTransport",
    "StreamableHTTPASGIApp",
    "TransportSecuritySettings",
    "end_session",
    "held_open",
    "idle_since",
    "open_sessions",
]


async def held_open(endpoint: ASGIApp, scope: Scope) -> bool:
    """Have a legacy session over HTTP counted as used just now; whether it is open to who asks.

    A session ends that has had no request for its idle time, and the SDK knows only of those that it
    gets. One of a method that it has no use for changes nothing else; what it answers depends on the
    session, and on whose it is.
    """
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await endpoint({**scope, "method": "PUT"}, receive, send)
    return statuses == [HTTPStatus.METHOD_NOT_ALLOWED]


def open_sessions(manager: SessionManager) -> Container[str]:
    """The names of the legacy sessions that are open over HTTP."""
    return manager._server_instances.keys()  # pyright: ignore[reportPrivateUsage]


def idle_since(manager: SessionManager, name: str) -> float | None:
    """A time that is the later the later a session was used; `None` while it is in use, or without it."""
    transport = manager._server_instances.get(name)  # pyright: ignore[reportPrivateUsage]
    if transport is None or transport.idle_scope is None:
        return None
    deadline = transport.idle_scope.deadline
    return None if isinf(deadline) else deadline


async def end_session(manager: SessionManager, name: str) -> None:
    """End a session as its client would."""
    transport = manager._server_instances.get(name)  # pyright: ignore[reportPrivateUsage]
    if transport is not None:
        await manager._discard_session(name, transport)  # pyright: ignore[reportPrivateUsage]
