"""`serve_connection`: serve one client over a dispatcher.

`ServerMachine` accepts or refuses the messages in the order of their arrival. `LineDispatcher` asks it where
the bytes of a message arrive (`admit`), any other dispatcher when the message is handled. An accepted request
becomes a `RequestContext` for `Answers`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from typing import Any, Final, cast

from mcp_toolset.context.connection import Answers, Connection, MessageSender, RequestContext, came_on
from mcp_toolset.protocol.dispatch import DispatchContext, Dispatcher, Params
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import Envelope, ServerMachine
from mcp_toolset.transports.requests import OneWayContext

INLINE: Final = frozenset({"initialize"})
"""Methods that are answered before the next message is read, which may come in the same bytes."""

_EARLY: Final = 8
"""The number of notifications before the first request that wait until the era is known."""


async def serve_connection(server: Answers, dispatcher: Dispatcher) -> None:
    """Serve one client until it leaves."""
    served = _ServedConnection(server, dispatcher)
    if hasattr(dispatcher, "admit"):
        cast("Any", dispatcher).admit = served.admit
    try:
        await dispatcher.run(served.on_request, served.on_notify, served.is_dropped)
    finally:
        await served.connection.aclose()


class _ServedConnection:
    """The state of one connection and its handlers."""

    def __init__(self, server: Answers, dispatcher: Dispatcher) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._machine = ServerMachine()
        self.connection = Connection(dispatcher)
        self._early: list[tuple[str, Params]] = []
        self._id = secrets.token_hex(16)

    def admit(self, method: str, params: Params) -> Envelope | MCPError:
        try:
            return self._machine.receive_request(method, params)
        except MCPError as refused:
            return refused

    def is_dropped(self, method: str, params: Params) -> bool:
        """True if a notification is dropped, or waits for the first request."""
        is_known = self._machine.era is not None
        is_accepted = self._machine.receive_notification(method, params)
        if not is_known and len(self._early) < _EARLY:
            self._early.append((method, params))
        return not (is_known and is_accepted)

    def on_request(self, context: DispatchContext, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        way = cast("OneWayContext", context)
        envelope = way.accepted or self.admit(method, params)
        if isinstance(envelope, MCPError):
            raise envelope
        if envelope.is_modern:
            # Over message streams and SSE a request is handled in the context of its sender.
            came_on(self._id)
            way.refuse_requests()
            connection = modern_connection(envelope, self._dispatcher)
            request = RequestContext(method, params, way.request_id, connection, way, way.http)
            return _answer_once(self._server, request)
        request = RequestContext(method, params, way.request_id, self.connection, way, way.http)
        if self._early:
            return self._answer_after_early(request)
        return self._server.answer(request)

    async def _answer_after_early(self, request: RequestContext) -> dict[str, Any]:
        early, self._early = self._early, []
        for method, params in early:
            if self._machine.receive_notification(method, params):
                await self.on_notify(request.way, method, params)
        return await self._server.answer(request)

    async def on_notify(self, context: DispatchContext, method: str, params: Params) -> None:
        way = cast("OneWayContext", context)
        connection = self.connection
        if self._machine.era == "modern":
            way.refuse_requests()
            # The envelope is for requests only.
            connection = modern_connection(self._machine.envelope, self._dispatcher)
        await self._server.notified(RequestContext(method, params, None, connection, way, way.http))
        if connection is not self.connection:
            await connection.aclose()


def modern_connection(envelope: Envelope, sender: MessageSender | None = None) -> Connection:
    """The connection of one modern request, made from its envelope."""
    return Connection(
        sender,
        protocol_version=envelope.protocol_version,
        client_info=envelope.client_info,
        client_capabilities=envelope.client_capabilities,
        initialize_accepted=True,
    )


async def _answer_once(server: Answers, request: RequestContext) -> dict[str, Any]:
    """Answer a modern request, and close its connection."""
    try:
        return await server.answer(request)
    finally:
        if request.connection.has_callbacks:
            await request.connection.aclose()
