"""`serve_connection`: one client over a duplex connection, in the era that its first request opens.

`ServerMachine` decides about each message in the order in which they come; `LineDispatcher` asks it where the
bytes of a message arrive (`admit`), any other dispatcher when the message is handled. What is accepted
becomes a `RequestContext`, which `Answers` answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol, cast

from mcp_toolset.context.client import came_on
from mcp_toolset.context.connection import Answers, Connection, RequestContext, Sender
from mcp_toolset.protocol.dispatch import DispatchContext, Dispatcher
from mcp_toolset.protocol.inbound import Envelope
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.transports.requests import OneWayContext

INLINE: Final = frozenset({"initialize"})
"""What is answered before the next message is looked at: a client may send both at once."""

_EARLY: Final = 8
"""Notifications before the first request that are kept until the era is known."""

Params = Mapping[str, Any] | None


class Admitting(Protocol):
    """A dispatcher that has each request decided about when it arrives."""

    admit: Any


async def serve_connection(server: Answers, dispatcher: Dispatcher) -> None:
    """Serve one client until it leaves.

    Args:
        server: What to serve.
        dispatcher: The connection, not yet running. The contexts of its requests are `OneWayContext`s.
    """
    served = _Served(server, dispatcher)
    if hasattr(dispatcher, "admit"):
        cast("Admitting", dispatcher).admit = served.admit
    try:
        await dispatcher.run(served.on_request, served.on_notify, served.is_dropped)
    finally:
        await served.connection.aclose()


class _Served:
    """One connection, and what its client has said so far."""

    def __init__(self, server: Answers, dispatcher: Dispatcher) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._machine = ServerMachine()
        self.connection = Connection(dispatcher)
        self._early: list[tuple[str, Params]] = []
        self._name = secrets.token_hex(16)

    def admit(self, method: str, params: Params) -> Envelope | MCPError:
        """Decide about a request that has come: who asks, or why it is refused."""
        try:
            return self._machine.receive_request(method, params)
        except MCPError as refused:
            return refused

    def is_dropped(self, method: str, params: Params) -> bool:
        """Whether a notification that has come is not to be handled, at least not yet."""
        is_known = self._machine.era is not None
        is_taken = self._machine.receive_notification(method, params)
        if not is_known and len(self._early) < _EARLY:
            self._early.append((method, params))
        return not (is_known and is_taken)

    def on_request(self, context: DispatchContext, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        given: Any = context
        way: OneWayContext = given
        accepted = way.accepted or self.admit(method, params)
        if isinstance(accepted, MCPError):
            raise accepted
        if accepted.is_modern:
            # Over message streams and SSE a request is handled in the context of its sender.
            came_on(self._name)
            way.refuse_requests()
            connection = modern_connection(accepted, self._dispatcher)
            request = RequestContext(method, params, way.request_id, connection, way, way.http)
            return _ended(self._server, request)
        request = RequestContext(method, params, way.request_id, self.connection, way, way.http)
        if self._early:
            return self._answered_late(request)
        return self._server.answer(request)

    async def _answered_late(self, request: RequestContext) -> dict[str, Any]:
        """The answer to the first request, behind the notifications that came before it."""
        early, self._early = self._early, []
        for method, params in early:
            if self._machine.receive_notification(method, params):
                await self.on_notify(cast("DispatchContext", request.way), method, params)
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


def modern_connection(envelope: Envelope, sender: Sender | None = None) -> Connection:
    """The connection of one modern request, of which its envelope says everything.

    Args:
        envelope: What the client says of itself.
        sender: What sends notifications outside of the request, where something can.
    """
    return Connection(
        sender,
        protocol_version=envelope.protocol_version,
        client_info=envelope.client_info,
        client_capabilities=envelope.client_capabilities,
        initialize_accepted=True,
    )


async def _ended(server: Answers, request: RequestContext) -> dict[str, Any]:
    """The answer to a modern request, whose connection ends with it."""
    try:
        return await server.answer(request)
    finally:
        if request.connection.has_callbacks:
            await request.connection.aclose()
