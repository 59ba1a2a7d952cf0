"""The SDK's server as the bridge drives it: its types, its runner, a session's connection, its spans.

Private are `ServerSession._connection`, because nothing public tells one legacy connection from another,
`ServerSession._request_outbound`, because nothing public sends a message unchanged, and
`MCPServer._lowlevel_server`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.mcpserver import MCPServer
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext as SdkTransportContext

from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.sdk.errors import from_sdk, to_sdk

__all__ = [
    "CallNext",
    "Connection",
    "HandlerResult",
    "InitializationOptions",
    "NotificationOptions",
    "SdkTransportContext",
    "Server",
    "ServerMessageMetadata",
    "ServerMiddleware",
    "ServerRequestContext",
    "ServerRunner",
    "ServerSession",
    "SessionMessage",
    "aclose_shielded",
    "ends_of",
    "holds_cleanup",
    "in_server_span",
    "lowlevel_of",
    "only_traces",
]


def lowlevel_of(server: object) -> Server[Any] | None:
    """The low-level server behind an in-process target, or `None` if it is no server."""
    if isinstance(server, Server):
        return cast("Server[Any]", server)
    if isinstance(server, MCPServer):
        return cast("Server[Any]", server._lowlevel_server)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    own = getattr(server, "lowlevel", None)
    return cast("Server[Any]", own) if isinstance(own, Server) else None


def ends_of(session: ServerSession) -> tuple[DispatchContext, Connection]:
    """What a request's session sends messages by: on the stream of the request, and outside of it."""
    return session._request_outbound, session._connection  # pyright: ignore[reportPrivateUsage, reportReturnType]


def holds_cleanup(connection: Connection) -> bool:
    """True if anything was left on a connection to be done at its end."""
    # The standard library has no public way to ask; without the attribute the answer is yes.
    return bool(getattr(connection.exit_stack, "_exit_callbacks", True))


_SPANS: Final = OpenTelemetryMiddleware()
_TRACES: Final = frozenset({OpenTelemetryMiddleware})

Answer = Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]


def in_server_span(answer: Answer) -> Answer:
    """How a request is answered, within the span that the SDK gives it."""

    async def within(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await to_sdk(answer(request))

    async def spanned(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await from_sdk(cast("Awaitable[dict[str, Any]]", _SPANS(request, within)))

    return spanned


def only_traces(middleware: Iterable[ServerMiddleware[Any]]) -> bool:
    return _TRACES.issuperset(map(type, middleware))
