"""`serve_connection`: one client over a duplex connection, in the era that its first request opens.

The SDK has such a loop for its own transports. It decides the era before it dispatches anything, so
that every message takes one more queue; here the first request decides as it is handled. A server that
answers some methods with raw dictionaries (`QuickServer`) gets those without a model, a middleware or a
connection of the SDK's in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

import anyio
import mcp_types as types
from pydantic import ValidationError

from mcp_toolset.context.client import came_on
from mcp_toolset.protocol.dispatch import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnRequest,
    Outbound,
    TransportContext,
)
from mcp_toolset.protocol.errors import error_for_peer
from mcp_toolset.protocol.inbound import Envelope, read_envelope
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, MCPError
from mcp_toolset.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_toolset.sdk.errors import from_sdk
from mcp_toolset.sdk.models import (
    Connection,
    InitializationOptions,
    NotifyOnlyOutbound,
    Server,
    ServerMessageMetadata,
    ServerRequestContext,
    ServerSession,
)
from mcp_toolset.sdk.servers import ServerRunner, aclose_shielded, holds_cleanup, serve_one
from mcp_toolset.transports.direct_handlers import tool_handler
from mcp_toolset.transports.requests import OneWayContext

INLINE: Final = frozenset({"initialize"})
"""What is answered before the next message is looked at: a client may send both at once."""

_EARLY: Final = 8
"""Notifications before the first request that are kept until the era is known."""

_MODERN: Final = TransportContext(kind="jsonrpc", can_send_request=False)

Params = Mapping[str, Any] | None
Quick = Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]


class QuickServer(Protocol):
    """A server that answers some methods by itself."""

    def quick(self, method: str) -> Quick | None:
        """How to answer a method with a raw result in the envelope of the caller's era, if it is one."""
        ...


async def serve_connection(
    server: Server[Any], dispatcher: Dispatcher, state: Any, options: InitializationOptions
) -> None:
    """Serve one client until it leaves.

    Args:
        server: What to serve; a `QuickServer` perhaps.
        dispatcher: The connection, not yet running.
        state: What the server's lifespan gave.
        options: What the server says of itself in a handshake.
    """
    connection = Connection.for_loop(dispatcher)  # pyright: ignore[reportArgumentType]
    serving = _Serving(server, dispatcher, connection, state, options)
    try:
        await dispatcher.run(serving.on_request, serving.on_notify)
    finally:
        await aclose_shielded(connection)


class _Serving:
    """One connection, and the era that it is in."""

    def __init__(
        self,
        server: Server[Any],
        dispatcher: Dispatcher,
        connection: Connection,
        state: Any,
        options: InitializationOptions,
    ) -> None:
        self._server = server
        self._state = state
        self._connection = connection
        self._runner = ServerRunner(server, connection, state, init_options=options)
        self._outbound = NotifyOnlyOutbound(dispatcher)  # pyright: ignore[reportArgumentType]
        self._quick: Callable[[str], Quick | None] = getattr(server, "quick", _none)
        self._modern: bool | None = None
        self._early: list[tuple[DispatchContext, str, Params]] = []
        self._callers = Callers(self._outbound)  # pyright: ignore[reportArgumentType]
        self._name = uuid.uuid4().hex

    async def on_request(self, context: DispatchContext, method: str, params: Params) -> dict[str, Any]:
        meta = params.get("_meta") if params else None
        enveloped = isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
        if self._modern is None:
            await self._decide(enveloped and method != "initialize")
        if self._modern:
            return await self._answer_modern(context, method, params)
        if enveloped and method != "initialize":
            raise MCPError(
                INVALID_REQUEST,
                "this connection has begun with a handshake; requests with the envelope of 2026-07-28 are "
                "not accepted on it",
            )
        quick = self._quick(method) if self._connection.initialize_accepted else None
        if quick is None:
            return await from_sdk(self._runner.on_request(context, method, params))  # pyright: ignore[reportArgumentType]
        return await quick(request_of(context, self._connection, method, params, self._state))

    async def on_notify(self, context: DispatchContext, method: str, params: Params) -> None:
        if self._modern is None:
            if len(self._early) < _EARLY:
                self._early.append((context, method, params))
        elif self._modern:
            await self._notify_modern(context, method, params)
        else:
            await self._runner.on_notify(context, method, params)  # pyright: ignore[reportArgumentType]

    async def _decide(self, modern: bool) -> None:
        self._modern = modern
        early, self._early = self._early, []
        for note in early:
            await self.on_notify(*note)

    async def _answer_modern(self, context: DispatchContext, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            raise MCPError(
                UNSUPPORTED_PROTOCOL_VERSION,
                "this connection speaks 2026-07-28 and takes no handshake",
                _supported(params),
            )
        route = read_envelope(method, params)
        # Over message streams and SSE a request is handled in the context of its sender.
        came_on(self._name)
        refusing = _ModernContext(context)
        connection = self._callers.connection(route)
        quick = self._quick(method)
        try:
            if quick is not None:
                return await quick(request_of(refusing, connection, method, params, self._state))
            return await from_sdk(
                serve_one(
                    self._server,
                    cast("Any", refusing),
                    method,
                    params,
                    connection=connection,
                    lifespan_state=self._state,  # pyright: ignore[reportArgumentType]
                )
            )
        except (MCPError, ValidationError):
            raise
        # The same answer as over HTTP, whatever a handler raises.
        except Exception as raised:
            raise MCPError.from_error_data(error_for_peer(raised)) from raised

    async def _notify_modern(self, context: DispatchContext, method: str, params: Params) -> None:
        # The envelope is for requests only; notifications are read as of the latest revision.
        connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._outbound)
        try:
            runner = ServerRunner(self._server, connection, self._state)
            await runner.on_notify(_ModernContext(context), method, params)  # pyright: ignore[reportArgumentType]
        finally:
            await aclose_shielded(connection)


class Callers:
    """The connections of modern requests, each made from its request's envelope.

    Reading an envelope costs as much as the rest of a call, and a client sends the same one each time:
    it is read anew only when it differs from the last one.
    """

    def __init__(self, outbound: Outbound | None = None) -> None:
        """Make connections whose own notifications go to `outbound`; nowhere without it."""
        self._outbound = outbound
        self._known: Connection | None = None
        self._envelope: tuple[Any, ...] = ()

    def connection(self, route: Envelope) -> Connection:
        """A connection for one request, with a state of its own."""
        envelope = (route.protocol_version, route.client_info, route.client_capabilities)
        if self._known is None or envelope != self._envelope:
            self._known = self._read(*envelope)
            self._envelope = envelope
        known = self._known
        fresh = Connection(
            known.outbound, protocol_version=known.protocol_version, client_params=known.client_params
        )
        fresh.client_capabilities = known.client_capabilities
        fresh.initialized.set()
        return fresh

    def _read(self, version: str, info: Any, capabilities: Any) -> Connection:
        if self._outbound is None:
            return Connection.from_envelope(version, info, capabilities)
        return Connection.from_envelope(version, info, capabilities, outbound=self._outbound)  # pyright: ignore[reportArgumentType]


def request_of(
    context: DispatchContext,
    connection: Connection,
    method: str,
    params: Params,
    state: Any,
) -> ServerRequestContext[Any, Any]:
    """What a `Quick` is called with: the SDK's context of a request, its `_meta` as it came."""
    metadata = context.message_metadata
    raw = params.get("_meta") if params else None
    meta = cast("types.RequestParamsMeta", raw) if isinstance(raw, dict) else None
    return ServerRequestContext(
        session=ServerSession(context, connection, request_meta=meta),  # pyright: ignore[reportArgumentType]
        lifespan_context=state,
        protocol_version=connection.protocol_version,
        method=method,
        params=params,
        request_id=context.request_id,
        meta=meta,
        request=metadata.request_context if isinstance(metadata, ServerMessageMetadata) else None,
    )


def modern_answers(server: Server[Any], state: Any) -> OnRequest:
    """Serve modern requests one by one to callers of this process, who are known and trusted.

    The caller's context must refuse requests to the client by itself. A server that answers a method
    by itself is asked directly, and the connection of a request is only unwound if it holds anything.
    """
    callers = Callers()
    find: Callable[[str], Quick | None] = getattr(server, "quick", _none)

    async def answer(context: DispatchContext, method: str, params: Params) -> dict[str, Any]:
        meta: Mapping[str, Any] = (params or {}).get("_meta") or {}
        connection = callers.connection(
            Envelope(
                meta.get(PROTOCOL_VERSION_META_KEY, LATEST_MODERN_VERSION),
                meta.get(CLIENT_INFO_META_KEY),
                cast("Any", meta.get(CLIENT_CAPABILITIES_META_KEY)),
            )
        )
        quick = find(method) or tool_handler(server, method)
        try:
            if quick is not None:
                return await quick(request_of(context, connection, method, params, state))
            return await from_sdk(ServerRunner(server, connection, state).on_request(context, method, params))  # pyright: ignore[reportArgumentType]
        finally:
            if holds_cleanup(connection):
                await aclose_shielded(connection)

    return answer


class _ModernContext(OneWayContext):
    """A request's context in the modern era, which knows no requests from server to client."""

    __slots__ = ("_inner", "message_metadata", "request_id")

    transport = _MODERN

    def __init__(self, inner: DispatchContext) -> None:
        self._inner = inner
        self.request_id = inner.request_id
        self.message_metadata = inner.message_metadata

    @property
    def cancel_requested(self) -> anyio.Event:
        return cast("anyio.Event", self._inner.cancel_requested)

    @property
    def reason(self) -> str | None:
        """Why the client has cancelled the request, if it has said so."""
        return getattr(self._inner, "reason", None)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        await self._inner.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._inner.progress(progress, total, message)


def _none(method: str) -> Quick | None:
    return None


def _supported(params: Params) -> dict[str, Any]:
    """What a client is told that asks a modern connection for a handshake."""
    data: dict[str, Any] = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
    requested = (params or {}).get("protocolVersion")
    return {**data, "requested": requested} if isinstance(requested, str) else data
