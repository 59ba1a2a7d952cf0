"""What a POST to the endpoint says of itself: its head, as far as one has to know it, and its body."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from starlette.types import Message, Receive

from mcp_toolset.protocol.eras import SESSION
from mcp_toolset.protocol.revisions import HANDSHAKE_PROTOCOL_VERSIONS
from mcp_toolset.sdk.http_sessions import MAX_BODY

Headers = list[tuple[bytes, bytes]]

VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
LAST_EVENT: Final = b"last-event-id"

LEGACY: Final = frozenset((None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)))
"""What a request of the legacy era may have as its version; the handshake has none."""

_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_ONCE: Final = frozenset(
    (b"accept", b"content-length", b"content-type", METHOD, b"mcp-name", VERSION, SESSION, b"host")
)
_UNKNOWN: Final = (b"transfer-encoding", b"content-encoding", b"expect")
_PARAM: Final = b"mcp-param-"
_DIGITS: Final = len(str(MAX_BODY))
"""Digits of the largest size; Python refuses to read thousands of them."""

_KINDS: Final = 64
"""Different values of one header that are remembered; clients send one and the same."""


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header."""
    for each, value in headers:
        if each == name:
            return value
    return None


def usual_head(headers: Headers) -> dict[bytes, bytes] | None:
    """The headers of a POST, if there is nothing about them that the SDK might object to."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in _ONCE:
            return None
        if name in _UNKNOWN or name.startswith(_PARAM):
            return None
        found[name] = value
    size = found.get(b"content-length", b"")
    fits = (
        _is_json(found.get(b"content-type", b""))
        and _takes_both(found.get(b"accept", b""))
        and size.isdigit()
        and len(size) <= _DIGITS
        and int(size) <= MAX_BODY
    )
    return found if fits else None


@lru_cache(_KINDS)
def _is_json(kind: bytes) -> bool:
    return kind.partition(b";")[0].strip() == _JSON


@lru_cache(_KINDS)
def _takes_both(accept: bytes) -> bool:
    kinds = {kind.partition(b";")[0].strip().lower() for kind in accept.split(b",")}
    return _JSON in kinds and _EVENTS in kinds


def takes_events(headers: Headers) -> bool:
    """Whether a request accepts a stream of events."""
    kinds = {
        kind.partition(b";")[0].strip().lower() for kind in (header(headers, b"accept") or b"").split(b",")
    }
    return not kinds.isdisjoint((_EVENTS, b"text/*", b"*/*"))


class Body:
    """The body of a POST, read here, and to be read again by whoever takes the request after all.

    Attributes:
        left: Whether the client has left before its end.
    """

    __slots__ = ("_receive", "_unread", "left")

    def __init__(self, receive: Receive) -> None:
        """Read nothing yet."""
        self._receive = receive
        self._unread: list[Message] = []
        self.left = False

    async def read(self) -> bytes | None:
        """Read all of it; `None` if the client left, or if it is longer than the SDK would take."""
        # A message for each crumb of it would take a hundred times the room.
        gathered = bytearray()
        while len(gathered) <= MAX_BODY:
            message = await self._receive()
            if message["type"] != "http.request":
                self.left = True
                self._unread = [_part(gathered, more=True), message]
                return None
            gathered += message.get("body", b"")
            if not message.get("more_body", False):
                self._unread = [whole := _part(gathered, more=False)]
                return whole["body"]
        self._unread = [_part(gathered, more=True)]
        return None

    async def receive(self) -> Message:
        """The request as if nobody had read it."""
        return self._unread.pop(0) if self._unread else await self._receive()


def _part(body: bytearray, *, more: bool) -> Message:
    return {"type": "http.request", "body": bytes(body), "more_body": more}
