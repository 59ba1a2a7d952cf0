"""All use of the MCP SDK: its types, and its private and provisional members. No other room imports `mcp`.

The SDK knows only its own error classes, so errors are converted at each call into the SDK and out of it.
This module uses four private members: `ServerSession._connection`, because nothing public tells a legacy
connection from another; `ServerSession._request_outbound`, because nothing public sends a message unchanged;
`MCPServer._lowlevel_server`; and the dispatcher's table of requests in flight. The SDK marks the protocol of
its dispatcher as provisional. `tests/sdk/test_seams.py` fails if one of these members changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final, TextIO, TypeVar, cast

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.mcpserver import MCPServer
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError as SdkError
from mcp.shared.exceptions import NoBackChannelError as SdkNoBackChannelError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext as SdkTransportContext
from mcp_types import ErrorData as SdkErrorData

from mcp_toolset.concurrency.tasks import reason_in, reason_or
from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    DispatchContext,
    Dispatcher,
    OnNotifyIntercept,
    run_notify_intercept,
)
from mcp_toolset.protocol.json_rpc import ErrorData, MCPError, NoBackChannelError, RequestId

__all__ = [
    "CallNext",
    "Client",
    "Connection",
    "HandlerResult",
    "InitializationOptions",
    "NotificationOptions",
    "SdkError",
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
    "from_sdk",
    "holds_cleanup",
    "in_server_span",
    "lowlevel_of",
    "only_traces",
    "ours",
    "sdk_child_dispatcher",
    "sdk_error_data",
    "stdio_server",
    "stream_dispatcher",
    "theirs",
    "to_sdk",
]

T = TypeVar("T")


def ours(fault: SdkError) -> MCPError:
    """The exception of the bridge for an exception of the SDK."""
    if isinstance(fault, SdkNoBackChannelError):
        return NoBackChannelError(fault.method)
    return MCPError(fault.code, fault.message, fault.data)


def theirs(fault: MCPError) -> SdkError:
    """The exception of the SDK for an exception of the bridge."""
    if isinstance(fault, NoBackChannelError):
        return SdkNoBackChannelError(fault.method)
    return SdkError(fault.code, fault.message, fault.data)


def sdk_error_data(fault: ErrorData) -> SdkErrorData:
    return SdkErrorData(code=fault.code, message=fault.message, data=fault.data)


async def from_sdk(call: Awaitable[T]) -> T:
    """Await a call of the SDK; its errors become errors of the bridge."""
    try:
        return await call
    except SdkError as fault:
        raise ours(fault) from None


async def to_sdk(call: Awaitable[T]) -> T:
    """Await a call of the bridge; its errors become errors of the SDK."""
    try:
        return await call
    except MCPError as fault:
        raise theirs(fault) from None


def stream_dispatcher(read: Any, write: Any, *, inline: frozenset[str] = frozenset()) -> Dispatcher:
    """The SDK's dispatcher over a transport's stream pair.

    Args:
        read: The stream of incoming messages.
        write: The stream of outgoing messages.
        inline: Methods whose requests are finished before the next message is taken.
    """
    return cast("Any", _ContextualDispatcher(read, write, inline_methods=inline))


class _ContextualDispatcher(JSONRPCDispatcher[SdkTransportContext]):
    """A dispatcher that handles notifications in order, each in the context of its sender.

    When it cancels a request, it sends the reason that its own client gave. When the peer cancels a request,
    the peer's reason is `reason` of the request's context.
    """

    def __init__(self, read: Any, write: Any, *, inline_methods: frozenset[str]) -> None:
        super().__init__(read, write, inline_methods=inline_methods)
        self._read = read

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: Any = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        sent = super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        # A request within another one is sent by the code of the SDK, which knows its own errors.
        return await (sent if _related_request_id is not None else from_sdk(sent))

    async def _cancel_outbound(
        self, request_id: types.RequestId, reason: str, related_request_id: types.RequestId | None
    ) -> None:
        await super()._cancel_outbound(request_id, reason_or(reason), related_request_id)

    def _dispatch_notification(
        self,
        msg: types.JSONRPCNotification,
        metadata: MessageMetadata,
        on_notify: Any,
        sender_ctx: Context | None,
    ) -> None:
        """Note the reason on a request that a peer cancels."""
        if msg.method == "notifications/cancelled":
            number: object = (msg.params or {}).get("requestId")
            known = self._in_flight.get(coerce_request_id(number)) if isinstance(number, int | str) else None
            if known is not None:
                known.dctx.reason = reason_in(msg.params)  # pyright: ignore[reportAttributeAccessIssue]
        super()._dispatch_notification(msg, metadata, on_notify, sender_ctx)

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Any = NOT_AWAITED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            sender: Context | None = getattr(self._read, "last_context", None)
            if sender is None:
                return run_notify_intercept(on_notify_intercept, method, params)
            return sender.run(run_notify_intercept, on_notify_intercept, method, params)

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            return await to_sdk(on_request(context, method, params))

        await super().run(answer, on_notify, intercept, task_status=task_status)


@asynccontextmanager
async def sdk_child_dispatcher(errors: TextIO, **started: Any) -> AsyncGenerator[Dispatcher]:
    """Start a server as a child process by the SDK's transport, on systems where pipes cannot be awaited."""
    async with stdio_client(StdioServerParameters(**started), errlog=errors) as (read, write):
        yield stream_dispatcher(read, write)


def lowlevel_of(server: object) -> Server[Any] | None:
    """The low-level server behind an in-process target, or `None` if it is no server."""
    if isinstance(server, Server):
        return cast("Server[Any]", server)
    if isinstance(server, MCPServer):
        return cast("Server[Any]", server._lowlevel_server)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    own = getattr(server, "lowlevel", None)
    return cast("Server[Any]", own) if isinstance(own, Server) else None


def ends_of(session: ServerSession) -> tuple[DispatchContext, Connection]:
    """The two senders of a session: on the stream of the request, and outside of it."""
    return session._request_outbound, session._connection  # pyright: ignore[reportPrivateUsage, reportReturnType]


def holds_cleanup(connection: Connection) -> bool:
    """True if a connection has cleanup to run when it ends."""
    # The standard library has no public way to ask; without the attribute the answer is yes.
    return bool(getattr(connection.exit_stack, "_exit_callbacks", True))


_SPANS: Final = OpenTelemetryMiddleware()
_TRACES: Final = frozenset({OpenTelemetryMiddleware})

Answer = Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]


def in_server_span(answer: Answer) -> Answer:
    """`answer` within the span in which the SDK traces a request."""

    async def within(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await to_sdk(answer(request))

    async def spanned(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await from_sdk(cast("Awaitable[dict[str, Any]]", _SPANS(request, within)))

    return spanned


def only_traces(middleware: Iterable[ServerMiddleware[Any]]) -> bool:
    """True if no middleware does anything but trace requests."""
    return _TRACES.issuperset(map(type, middleware))
