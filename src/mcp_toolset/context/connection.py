"""`ServedClient`; its `Connection`: what its requests have in common; `RequestContext`: one of these.

A legacy client has one for its life. The modern protocol has no sessions: there each request has one of
its own, made of its envelope.
"""

from __future__ import annotations

import inspect
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import anyio

from mcp_toolset._callbacks import Callbacks
from mcp_toolset.errors import CallerError
from mcp_toolset.protocol.json_rpc import NoBackChannelError, RequestId
from mcp_toolset.protocol.methods import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS, is_modern
from mcp_toolset.tools.call import Identity, identity_of_token
from mcp_toolset.tools.result import ANSWERABLE

if TYPE_CHECKING:
    from starlette.requests import Request

    from mcp_toolset.protocol.dispatch import DispatchContext

LOGIN_PATH = "/oauth/login/"


CALLBACK_PATH = "/oauth/callback"


class PendingLogin(ABC):
    """A login that waits for a person and a browser."""

    server: str  # The name of the mounted server.
    caller: str  # The name of the caller whose account at the server it will use.
    caller_key: str  # The key of that caller.
    browser: str  # The key of the browser that began it; empty so far.

    @abstractmethod
    def begin(self, browser: str) -> str | None:
        """The address of the authorization server, for the first browser that asks; else `None`."""

    @abstractmethod
    async def arrive(self, address: str) -> bool:
        """Take the address that the browser was sent back to, once; whether the caller has tokens then."""


_MEND: Final = (
    "have the authentication middleware set scope['user'] to a starlette.authentication.BaseUser whose "
    "`is_authenticated` is True or False and whose `display_name` is a text that no other user has"
)


def principal_of(scope: Mapping[str, Any]) -> str | None:
    """The key of the identity of a request; `None` for an anonymous one."""
    identity = identity_of(scope)
    return None if identity is None else identity.key


def identity_of(scope: Mapping[str, Any]) -> Identity | None:
    """The caller of a request; `None` for an anonymous one.

    `scope["user"]` is an `Identity`, or a user as Starlette has them. Without one, or with one whose
    `is_authenticated` is `False`, the request is anonymous. Users of access tokens are told apart by their
    tokens, all others by `display_name`; these have the scopes of `scope["auth"]`.
    """
    user: Any = scope.get("user")
    if user is None or isinstance(user, Identity):
        return user
    try:
        is_authenticated: object = user.is_authenticated
        if is_authenticated is False:
            return None
        identity = identity_of_token(getattr(user, "access_token", None))
        name: object = identity.key if identity else user.display_name
    # The user is an object of the application, whose properties may raise anything.
    except Exception as fault:
        raise CallerError(
            f"the user of a request ({_kind(user)}) cannot be read: {fault!r}; {_MEND}"
        ) from fault
    if is_authenticated is not True or not isinstance(name, str) or not name:
        found = f"is_authenticated={is_authenticated!r} and display_name={name!r}"
        raise CallerError(f"the user of a request ({_kind(user)}) has {found}; {_MEND}")
    scopes: Iterable[str] = getattr(scope.get("auth"), "scopes", ())
    return identity or Identity(name, subject=name, scopes=frozenset(scopes))


def _kind(user: object) -> str:
    return f"{type(user).__module__}.{type(user).__qualname__}"


CLOSE_TIMEOUT: Final = 5.0  # Seconds that what is to be done at the end of a connection may take.

_BY_SUBSCRIPTION: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications for the streams of `subscriptions/listen` requests of modern clients."""

_log = logging.getLogger("mcp_toolset.wire")

Wire = Mapping[str, Any]
Closing = Callable[[], Awaitable[object] | object]


class MessageSender(Protocol):
    """Sends messages to a client outside of its requests: a dispatcher, or the GET stream of a session."""

    async def send_raw_request(
        self, method: str, params: Wire | None, opts: Any = None
    ) -> dict[str, Any]: ...

    async def notify(self, method: str, params: Wire | None, opts: Any = None) -> None: ...


class Connection:
    """One client, for its life (legacy) or for one request (modern)."""

    __slots__ = (
        *("_callbacks", "_sender", "_state", "client", "client_capabilities", "client_info"),
        *("initialize_accepted", "protocol_version", "session_id"),
    )

    def __init__(
        self,
        sender: MessageSender | None = None,
        *,
        protocol_version: str = LATEST_HANDSHAKE_VERSION,
        client_info: Wire | None = None,
        client_capabilities: Wire | None = None,
        initialize_accepted: bool = False,
        session_id: str | None = None,
    ) -> None:
        self._sender = sender
        self._callbacks: list[Closing] | None = None
        self._state: dict[str, Any] | None = None
        self.client: Any = None  # The `ServedClient`, once `client_of` has made it.
        # The revision that it speaks; before a handshake the latest one of the legacy era.
        self.protocol_version = protocol_version
        self.client_info = client_info  # Its name and version in wire form; `None` while it has not said.
        # Its declared capabilities, in wire form.
        self.client_capabilities: Wire = {} if client_capabilities is None else client_capabilities
        # True if requests other than the handshake are answered.
        self.initialize_accepted = initialize_accepted
        self.session_id = session_id  # The id of a legacy session over HTTP.

    @property
    def state(self) -> dict[str, Any]:
        """Data of other modules about this client, each under a key of its own."""
        if self._state is None:
            self._state = {}
        return self._state

    def accept(self, version: str, info: Wire | None, capabilities: Wire | None) -> None:
        """Open the connection to all requests: its client has begun in a revision, and said who it is."""
        self.protocol_version = version
        self.client_info = info
        self.client_capabilities = capabilities or {}
        self.initialize_accepted = True

    @property
    def can_send_request(self) -> bool:
        """True if the client can be sent requests outside of its own."""
        return self._sender is not None and not is_modern(self.protocol_version)

    async def send_raw_request(
        self, method: str, params: Wire | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request outside of any request of the client, and wait for its result."""
        if self._sender is None or is_modern(self.protocol_version):
            raise NoBackChannelError(method)
        return await self._sender.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Wire | None = None, *, seen_by_all: bool = False) -> None:
        """Send a notification outside of any request, where the client can be reached.

        `seen_by_all` says that every replica of the server sends the same by itself.
        """
        if self._sender is None or (method in _BY_SUBSCRIPTION and is_modern(self.protocol_version)):
            return
        try:
            await self._sender.notify(method, params, {"seen_by_all": True} if seen_by_all else None)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("%s was not sent, as the client has left", method)

    def on_close(self, callback: Closing) -> None:
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    async def aclose(self) -> None:
        if not self._callbacks:
            return
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True) as scope:
            while self._callbacks:
                await _close(self._callbacks.pop())
        if scope.cancelled_caught:
            _log.warning(
                "closing a connection took more than %g s; the remaining steps are skipped", CLOSE_TIMEOUT
            )


async def _close(callback: Closing) -> None:
    try:
        pending = callback()
        if inspect.isawaitable(pending):
            await pending
    # A callback is another module's code; one that fails must not keep the others from being called.
    except Exception:
        _log.exception("a step at the end of a connection failed")


HOLD: Final = "mcp_toolset.hold"  # In the scope of a long request: a weak reference to its body's counter.


class RequestContext:
    """One request of one client; a notification has no id."""

    __slots__ = ("connection", "http", "method", "modern", "params", "protocol_version", "request_id", "way")

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        request_id: RequestId | None,
        connection: Connection,
        way: DispatchContext,
        http: Request | None = None,
    ) -> None:
        self.method = method
        self.params = params  # Its parameters as they came; `None` if it has none.
        self.request_id = request_id
        self.connection = connection  # The data common to all requests of its client.
        self.way = way  # The way back to its client.
        self.http = http  # The HTTP request that it came in.
        self.protocol_version = connection.protocol_version  # The revision that it is answered in.
        self.modern = self.protocol_version in MODERN_PROTOCOL_VERSIONS  # True if it is of the modern era.

    @property
    def identity(self) -> Identity | None:
        return None if self.http is None else identity_of(self.http.scope)

    @property
    def hold(self) -> object:
        found = None if self.http is None else self.http.scope.get(HOLD)
        return None if found is None else found()


class Answers(Protocol):
    """A server, as every door sees it."""

    def answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]: ...

    async def notified(self, request: RequestContext) -> None: ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the server open for as long as the block runs, which a door does while it serves."""
        ...

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The input schema of a tool that the caller of an ASGI scope can call."""

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream in order."""


ANSWERABLE_WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
}
"""Each of them with all its features, as a client declares it that has them."""

APPS: Final = "io.modelcontextprotocol/ui"
CARRIED_EXTENSIONS: Final = frozenset({APPS})
"""The extensions of which every message crosses the bridge: an app is a resource and a key of `_meta`.

The tasks extension is none of them: its requests (`tasks/get`, `tasks/cancel`) would not be answered.
"""

EXTENSION_TABLES: Final = ("extensions", "experimental")
"""The capabilities that are tables of extensions by identifier."""

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
        *("_connection", "answers_pings", "carried", "declares", "extensions", "gone", "key", "log_level"),
        *("roots_changed", "routes"),
    )

    def __init__(
        self, key: str | None, carried: Mapping[str, Any], connection: Connection | None = None
    ) -> None:
        self.key = key  # Unique for the client's whole life; `None` if nothing tells it from others.
        self.carried = carried  # Its capabilities that all mounted servers are told of.
        # What it declares of `extensions` and `experimental`.
        self.extensions = _NOTHING if connection is None else extensions_in(connection.client_capabilities)
        # The requests that it declared to answer, in wire form: some of `ANSWERABLE`.
        self.declares = declared_by(carried)
        # The sessions that its requests take, as each upstream has found out.
        self.routes: dict[object, Any] = {}
        # The least severe log message that it wants; `None` while it has not said.
        self.log_level: str | None = None
        self.answers_pings = True  # True if it is worth a ping.
        self._connection = connection
        # Told when its connection ends, which is the end of what works for this client alone.
        self.gone = Callbacks()
        self.roots_changed = Callbacks()  # Told when it says that its roots have changed.

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Ask outside of any call, as is only proper for roots; `None` if it has no connection of its own."""
        if self._connection is None:
            return None
        return await self._connection.send_raw_request(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell it something outside of any call; nothing happens if it has no connection of its own."""
        if self._connection is not None:
            await self._connection.notify(method, params)


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
    connection.on_close(client.gone.tell)
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


def extensions_in(capabilities: object) -> Mapping[str, Any]:
    """The tables `extensions` and `experimental` of capabilities, of those that are there."""
    wire = _members(capabilities)
    found = {kind: _members(wire[kind]) for kind in EXTENSION_TABLES if kind in wire}
    return {kind: table for kind, table in found.items() if table}


def with_extensions(capabilities: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {**capabilities, "extensions": {**capabilities.get("extensions", {}), **own}}


def _members(wire: object) -> Mapping[str, Any]:
    """The members of a JSON object; none of anything else."""
    return cast("Mapping[str, Any]", wire) if isinstance(wire, (dict, Mapping)) else _NOTHING
