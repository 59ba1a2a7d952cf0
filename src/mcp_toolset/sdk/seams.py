"""The one module that knows the SDK's inner seams.

Used here and nowhere else: `ClientSession(dispatcher=…)`, `Server.middleware`, the dispatcher
protocol (marked provisional by the SDK), and some that are private: `ServerSession._connection`,
because nothing public tells one legacy connection from another, `ServerSession._request_outbound`, because
nothing public sends a message as it is, `MCPServer._lowlevel_server`, the session manager's sessions, the
tracing of `mcp.server._otel`, and OpenTelemetry's own provider.
`tests/sdk/test_seams.py` fails if any of them moves.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import Context
from http import HTTPStatus
from math import isinf
from typing import Any, Final, cast

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data, serve_one
from mcp.server.session import ServerSession
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager as SessionManager
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE as MAX_BODY
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Outbound,
    ProgressFnT,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher, handler_exception_to_error_data
from mcp.shared.message import MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from opentelemetry.propagate import inject
from starlette.types import ASGIApp, Message, Scope

from mcp_toolset.concurrency.cancel_reason import given_up, reason_in, reason_or
from mcp_toolset.tools.core.asking import ELICITATION, ROOTS, SAMPLING

__all__ = [
    "ERROR_CODE_HTTP_STATUS",
    "MAX_BODY",
    "REQUEST_CANCELLED",
    "CallOptions",
    "ClientSession",
    "Connection",
    "DispatchContext",
    "Dispatcher",
    "InboundLadderRejection",
    "InboundModernRoute",
    "InitializationOptions",
    "MCPError",
    "NoBackChannelError",
    "NotifyOnlyOutbound",
    "ObservedDispatcher",
    "OnNotify",
    "OnNotifyIntercept",
    "OnRequest",
    "Outbound",
    "ProgressFnT",
    "RequestTimedOut",
    "Server",
    "ServerMessageMetadata",
    "SessionMessage",
    "ServerRequestContext",
    "ServerRunner",
    "ServerSession",
    "SessionManager",
    "StreamableHTTPASGIApp",
    "TransportContext",
    "aclose_shielded",
    "call_route",
    "classify_inbound_request",
    "client_span",
    "connection_of",
    "fault_for_peer",
    "header_fault",
    "header_map",
    "held_open",
    "holds_cleanup",
    "in_server_span",
    "lowlevel_of",
    "modern_error_data",
    "only_traces",
    "request_outbound",
    "routing_headers",
    "run_notify_intercept",
    "serve_one",
    "stream_dispatcher",
    "token_principal",
    "tracing",
    "when_traced",
]

_log = logging.getLogger("mcp_toolset.wire")

NotificationSink = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
"""Sees a raw notification first; `True` says that it is dealt with."""

RequestAnswerer = Callable[[str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Answers a raw request of the server."""

_SPANS: Final = OpenTelemetryMiddleware()
_TRACER: Final = trace.get_tracer("mcp-python-sdk")
"""Under the name that the SDK's own spans of requests have."""

_ANSWERED_HERE: Final = frozenset({ELICITATION, ROOTS, SAMPLING})


class RequestTimedOut(MCPError):
    """No answer came within the time given with a request; the peer was told."""


class ObservedDispatcher:
    """A dispatcher around another: shows raw messages of the server and the end of the connection.

    What the client declares in the handshake is given here, because the SDK's session derives it from
    the callbacks it has, all or nothing.
    """

    def __init__(
        self,
        inner: Dispatcher[Any],
        take: OnNotifyIntercept | None,
        on_notification: NotificationSink,
        on_request: RequestAnswerer,
        declares: Mapping[str, Any],
    ) -> None:
        """Wrap `inner`; `take` sees notifications first, in order, and in the context of their sender."""
        self._inner = inner
        self._take = take
        self._on_notification = on_notification
        self._on_request = on_request
        self._declares = dict(declares)
        self.keeps_time: bool = getattr(inner, "keeps_time", False)
        self.closed = anyio.Event()

    @property
    def reads(self) -> bool:
        """Whether messages are read at the moment; not while a client has no room for an answer."""
        return not getattr(self._inner, "paced", False)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its raw result; `MCPError` if it fails."""
        if method == "initialize" and params is not None:
            params = {**params, "capabilities": self._declares}
        return await self._inner.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification."""
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the inner dispatcher to its end, then say that it has ended."""

        async def note(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            if not await self._on_notification(method, params):
                await on_notify(context, method, params)

        async def answer(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method in _ANSWERED_HERE:
                given_up.set(lambda: getattr(context, "reason", None))
                return await self._on_request(method, params)
            return await on_request(context, method, params)

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if run_notify_intercept(on_notify_intercept, method, params):
                return True
            return self._take is not None and self._take(method, params)

        try:
            await self._inner.run(answer, note, intercept, task_status=task_status)
        finally:
            self.closed.set()


def stream_dispatcher(read: Any, write: Any, *, inline: frozenset[str] = frozenset()) -> Dispatcher[Any]:
    """The SDK's dispatcher over a transport's stream pair.

    Args:
        read: Where messages come from.
        write: Where they go.
        inline: Methods of which a request is finished before the next message is taken.
    """
    return _ContextualDispatcher(read, write, inline_methods=inline)


class _ContextualDispatcher(JSONRPCDispatcher[TransportContext]):
    """Shows notifications, in the order in which they come, in the context of their sender.

    A request that is given up is cancelled for the reason that its own client has given; why a peer gives one
    up is `reason` of its context.
    """

    def __init__(self, read: Any, write: Any, *, inline_methods: frozenset[str]) -> None:
        super().__init__(read, write, inline_methods=inline_methods)
        self._read = read

    async def _cancel_outbound(
        self, request_id: types.RequestId, reason: str, related_request_id: types.RequestId | None
    ) -> None:
        await super()._cancel_outbound(request_id, reason_or(reason), related_request_id)

    def _dispatch_notification(
        self,
        msg: types.JSONRPCNotification,
        metadata: MessageMetadata,
        on_notify: OnNotify,
        sender_ctx: Context | None,
    ) -> None:
        """Note on the request that a peer gives up why it does."""
        if msg.method == "notifications/cancelled":
            number: object = (msg.params or {}).get("requestId")
            known = self._in_flight.get(coerce_request_id(number)) if isinstance(number, int | str) else None
            if known is not None:
                known.dctx.reason = reason_in(msg.params)  # pyright: ignore[reportAttributeAccessIssue]
        super()._dispatch_notification(msg, metadata, on_notify, sender_ctx)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            sender: Context | None = getattr(self._read, "last_context", None)
            if sender is None:
                return run_notify_intercept(on_notify_intercept, method, params)
            return sender.run(run_notify_intercept, on_notify_intercept, method, params)

        await super().run(on_request, on_notify, intercept, task_status=task_status)


def request_outbound(session: ServerSession) -> Outbound:
    """What sends messages on the stream of the request that a session is scoped to."""
    return session._request_outbound  # pyright: ignore[reportPrivateUsage]


def fault_for_peer(raised: BaseException) -> types.ErrorData:
    """What a peer is told of an exception that left a handler: its own error, or that there was one."""
    fault = handler_exception_to_error_data(raised) if isinstance(raised, Exception) else None
    if fault is None:
        _log.error("a request handler raised", exc_info=raised)
        fault = types.ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")
    return fault


def tracing() -> bool:
    """Whether somebody collects traces: else spans would go nowhere."""
    # `get_tracer_provider` reads the environment each time, which costs as much as parsing a message.
    return trace._TRACER_PROVIDER is not None  # pyright: ignore[reportPrivateUsage]


@contextmanager
def client_span(method: str, params: Mapping[str, Any] | None) -> Generator[dict[str, Any]]:
    """The span of a request that is sent; yields its parameters with the trace context in `_meta`."""
    stamped = dict(params or {})
    target = stamped.get("name")
    name = f"MCP send {method} {target}" if isinstance(target, str) else f"MCP send {method}"
    # It is not made the current one, which would cost a third more: nothing else is traced within it.
    span = _TRACER.start_span(name, kind=trace.SpanKind.CLIENT, attributes={"mcp.method.name": method})
    try:
        meta: dict[str, Any] = dict(stamped.get("_meta") or {})
        inject(meta, trace.set_span_in_context(span))
        if meta:
            stamped["_meta"] = meta
        yield stamped
    # Whatever the request failed by belongs into its span.
    except Exception as fault:
        span.record_exception(fault)
        span.set_status(trace.StatusCode.ERROR, f"{type(fault).__name__}: {fault}")
        raise
    finally:
        span.end()


def lowlevel_of(server: object) -> Server[Any] | None:
    """The low-level server behind an in-process target, or `None` if it is no server."""
    if isinstance(server, Server):
        return cast("Server[Any]", server)
    if isinstance(server, MCPServer):
        return cast("Server[Any]", server._lowlevel_server)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    own = getattr(server, "lowlevel", None)
    return cast("Server[Any]", own) if isinstance(own, Server) else None


def header_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the `x-mcp-header` annotations of an input schema."""
    return find_invalid_x_mcp_header(dict(schema))


def header_map(schema: Mapping[str, Any]) -> Mapping[tuple[str, ...], str]:
    """The `x-mcp-header` annotations of an input schema, by the path of the argument."""
    return x_mcp_header_map(dict(schema))


def routing_headers(
    version: str,
    method: str,
    params: Mapping[str, Any],
    headers: Mapping[tuple[str, ...], str],
) -> dict[str, str]:
    """The HTTP headers that must agree with a modern request's body (basic/transports)."""
    made = {MCP_PROTOCOL_VERSION_HEADER: version}
    if version not in MODERN_PROTOCOL_VERSIONS:
        return made
    made[MCP_METHOD_HEADER] = method
    name = params.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        made[MCP_NAME_HEADER] = encode_header_value(name)
    if headers:
        made.update(mcp_param_headers(dict(headers), params.get("arguments") or {}))
    return made


def call_route(
    request: Mapping[str, Any], headers: Iterable[tuple[bytes, bytes]]
) -> InboundModernRoute | None:
    """How a modern request that came over HTTP is routed; `None` if the SDK would refuse it."""
    folded = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name.startswith(b"mcp-")
    }
    route = classify_inbound_request(request, headers=folded)
    return route if isinstance(route, InboundModernRoute) else None


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


def when_traced(middleware: ServerMiddleware[Any]) -> ServerMiddleware[Any]:
    """The SDK's tracing, passed by while no tracer provider is set: its spans would go nowhere.

    Trace context still travels: it is a part of `_meta` and is forwarded with it.
    """
    if not isinstance(middleware, OpenTelemetryMiddleware):
        return middleware
    # The first look sets the provider that the environment names, if it names one.
    trace.get_tracer_provider()

    async def traced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if tracing():
            return await middleware(ctx, call_next)
        return await call_next(ctx)

    return traced


def in_server_span(
    answer: Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]],
) -> Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]:
    """How a request is answered, within the span that the SDK gives it, if somebody collects traces."""
    if not tracing():
        return answer

    async def spanned(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", await _SPANS(request, answer))

    return spanned


def only_traces(middleware: Iterable[ServerMiddleware[Any]]) -> bool:
    """Whether a server's middleware is the SDK's tracing and nothing else."""
    return all(type(each) is OpenTelemetryMiddleware for each in middleware)


def holds_cleanup(connection: Connection) -> bool:
    """Whether anything was left on a connection to be done at its end."""
    # The standard library has no public way to ask; without the attribute the answer is yes.
    return bool(getattr(connection.exit_stack, "_exit_callbacks", True))


def connection_of(session: ServerSession) -> Connection:
    """The connection behind a request's session: one object for the life of a legacy connection."""
    return session._connection  # pyright: ignore[reportPrivateUsage]


def token_principal(user: object) -> str | None:
    """Whom an access token stands for: its client, issuer and subject; `None` without a token.

    The display name of the SDK's user is the client's id alone, which all users of a client share.
    """
    token: object = getattr(user, "access_token", None)
    return json.dumps(principal_components(token)) if isinstance(token, AccessToken) else None
