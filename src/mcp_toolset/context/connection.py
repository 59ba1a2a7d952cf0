"""`Connection`: what the requests of one client have in common, and the way to it outside of any request.

A legacy client has one for its life. The modern protocol has no sessions: there each request has one of
its own, made of its envelope.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import anyio

from mcp_toolset.protocol.json_rpc import NoBackChannelError
from mcp_toolset.protocol.revisions import LATEST_HANDSHAKE_VERSION, is_modern

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that what is to be done at the end of a connection may take."""

_BY_SUBSCRIPTION: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""What a modern client gets on the streams of its `subscriptions/listen` requests and nowhere else."""

_log = logging.getLogger("mcp_toolset.wire")

Wire = Mapping[str, Any]
Closing = Callable[[], Awaitable[object] | object]


class Sender(Protocol):
    """Sends messages to a client outside of its requests: a dispatcher, or the GET stream of a session."""

    async def send_raw_request(
        self, method: str, params: Wire | None, opts: Any = None
    ) -> dict[str, Any]: ...

    async def notify(self, method: str, params: Wire | None, opts: Any = None) -> None: ...


class Connection:
    """One client, for its life (legacy) or for one request (modern).

    Attributes:
        protocol_version: The revision that it speaks; before a handshake the latest one of the legacy era.
        client_info: Its name and version in wire form; `None` while it has not said.
        client_capabilities: What it declares, in wire form.
        initialize_accepted: Whether requests other than the handshake are answered.
        session_id: The id of a legacy session over HTTP.
        client: What `client_of` has made of it; `None` before.
    """

    __slots__ = (
        "_callbacks",
        "_sender",
        "_state",
        "client",
        "client_capabilities",
        "client_info",
        "initialize_accepted",
        "protocol_version",
        "session_id",
    )

    def __init__(
        self,
        sender: Sender | None = None,
        *,
        protocol_version: str = LATEST_HANDSHAKE_VERSION,
        client_info: Wire | None = None,
        client_capabilities: Wire | None = None,
        initialize_accepted: bool = False,
        session_id: str | None = None,
    ) -> None:
        """Know a client; without a `sender` nothing reaches it outside of its requests."""
        self._sender = sender
        self._callbacks: list[Closing] | None = None
        self._state: dict[str, Any] | None = None
        self.client: Any = None
        self.protocol_version = protocol_version
        self.client_info = client_info
        self.client_capabilities: Wire = {} if client_capabilities is None else client_capabilities
        self.initialize_accepted = initialize_accepted
        self.session_id = session_id

    @property
    def state(self) -> dict[str, Any]:
        """What other modules keep of this client, each under a key of its own."""
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
        """Whether the client can be sent requests outside of its own."""
        return self._sender is not None and not is_modern(self.protocol_version)

    async def send_raw_request(
        self, method: str, params: Wire | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request outside of any request of the client, and wait for its result."""
        if self._sender is None or is_modern(self.protocol_version):
            raise NoBackChannelError(method)
        return await self._sender.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Wire | None = None, *, seen_by_all: bool = False) -> None:
        """Send a notification outside of any request; nothing happens where the client cannot be reached.

        `seen_by_all` says that every replica of the server sends the same by itself.
        """
        if self._sender is None or (method in _BY_SUBSCRIPTION and is_modern(self.protocol_version)):
            return
        try:
            await self._sender.notify(method, params, {"seen_by_all": True} if seen_by_all else None)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("%s was not sent, as the client has left", method)

    def on_close(self, callback: Closing) -> None:
        """Call `callback` when the connection ends; what was registered last is called first."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    @property
    def has_callbacks(self) -> bool:
        """Whether anything is to be done when the connection ends."""
        return bool(self._callbacks)

    async def aclose(self) -> None:
        """End the connection, whatever is cancelled meanwhile: at most `CLOSE_TIMEOUT` seconds."""
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
