"""`ServedClient`: the program at the other end of a served connection, as upstream sessions need to know it.

A legacy client is one object for the life of the connection; a modern one is known by its stream, if any.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Final, cast

from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.protocol.methods import is_modern
from mcp_toolset.tools.result import ANSWERABLE

ANSWERABLE_WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
}
"""Each of them with all its features, as a client declares it that has them."""

CARRIED_EXTENSIONS: Final = frozenset({"io.modelcontextprotocol/ui"})
"""The extensions of which every message crosses the bridge: an app is a resource and a key of `_meta`.

The tasks extension is none of them: its requests (`tasks/get`, `tasks/cancel`) would not be answered.
"""

_ANSWERABLE: Final = frozenset(ANSWERABLE)
_NOTHING: Final[Mapping[str, Any]] = {}

_stream: Final[ContextVar[str | None]] = ContextVar("mcp_toolset_stream", default=None)
"""The connection that a modern request came on, where one client has it for its life."""


def came_on(stream: str) -> None:
    """Say which connection the request comes on that the running task is about."""
    if _stream.get() != stream:
        _stream.set(stream)


def stream_of() -> str | None:
    """The key of the modern client by the pipe, stream or SSE connection of the request at hand.

    A server of this process that is mounted here is called in the course of such a request, by that client.
    """
    return _stream.get()


class ServedClient:
    """The calling program: its name, what it can be asked, its log level."""

    __slots__ = (
        *("_connection", "_gone", "_roots", "answers_pings", "carried", "declares", "key", "log_level"),
        *("routes",),
    )

    def __init__(
        self, key: str | None, carried: Mapping[str, Any], connection: Connection | None = None
    ) -> None:
        self.key = key  # Unique for the client's whole life; `None` if nothing tells it from others.
        self.carried = carried  # All its capabilities that mounted servers are told of.
        # The requests that it declared to answer, in wire form: some of `ANSWERABLE`.
        self.declares = declared_by(carried)
        # The sessions that its requests take, as each upstream has found out.
        self.routes: dict[object, Any] = {}
        # The least severe log message that it wants; `None` while it has not said.
        self.log_level: str | None = None
        self.answers_pings = True  # True if it is worth a ping.
        self._connection = connection
        self._gone: dict[object, Callable[[], None]] = {}
        self._roots: dict[object, Callable[[], None]] = {}

    def when_gone(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when its connection ends; returns a function that takes this back."""
        return _noted(self._gone, callback)

    def when_roots_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when it says that its roots have changed; returns a function that ends this."""
        return _noted(self._roots, callback)

    def roots_changed(self) -> None:
        for callback in list(self._roots.values()):
            callback()

    def gone(self) -> None:
        """Tell what works for this client alone, such as its upstream sessions, that it has left."""
        for callback in list(self._gone.values()):
            callback()

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Ask outside of any call, as is only proper for roots; `None` if it has no connection of its own."""
        if self._connection is None:
            return None
        return await self._connection.send_raw_request(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell it something outside of any call; nothing happens if it has no connection of its own."""
        if self._connection is not None:
            await self._connection.notify(method, params)


def _noted(table: dict[object, Callable[[], None]], callback: Callable[[], None]) -> Callable[[], None]:
    key = object()
    table[key] = callback
    return lambda: table.pop(key, None) and None


def client_of(request: RequestContext) -> ServedClient:
    connection = request.connection
    found: ServedClient | None = connection.client
    if found is None:
        found = connection.client = _described(connection)
    return found


def _described(connection: Connection) -> ServedClient:
    carried = carried_by(connection.client_capabilities)
    if is_modern(connection.protocol_version):
        return ServedClient(stream_of(), carried)
    # The id itself is a secret of the client's, and replicas must call a session the same.
    id = connection.session_id
    key = secrets.token_hex(16) if id is None else blake2b(id.encode(), digest_size=16).hexdigest()
    client = ServedClient(key, carried, connection)
    connection.on_close(client.gone)
    return client


def declared_by(capabilities: object) -> Mapping[str, Any]:
    wire = _members(capabilities)
    if not wire:
        return _NOTHING
    return {name: wire[name] for name in ANSWERABLE if isinstance(wire.get(name), Mapping)}


def carried_by(capabilities: object) -> Mapping[str, Any]:
    """The client capabilities that a mounted server is told of: all that the bridge carries to the end."""
    wire = _members(capabilities)
    if wire.keys() <= _ANSWERABLE and None not in wire.values():
        return wire
    declared = declared_by(wire)
    named = _members(wire.get("extensions")) if wire else _NOTHING
    kept = {name: named[name] for name in CARRIED_EXTENSIONS if name in named}
    return {**declared, "extensions": kept} if kept else declared


def with_extensions(capabilities: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Capabilities with further extensions, by name."""
    return {**capabilities, "extensions": {**capabilities.get("extensions", {}), **own}}


def _members(wire: object) -> Mapping[str, Any]:
    """The members of a JSON object; none of anything else."""
    return cast("Mapping[str, Any]", wire) if isinstance(wire, (dict, Mapping)) else _NOTHING
