"""Whole HTTP messages: `Head` and `read_body` of a request; `reply` and `refuse` of a response."""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from starlette.types import Receive, Send

from mcp_toolset.protocol.json_rpc import ErrorData, RequestId, json_of
from mcp_toolset.protocol.methods import HANDSHAKE_PROTOCOL_VERSIONS
from mcp_toolset.protocol.server_machine import SESSION

Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
PLAIN: Final = b"text/plain; charset=utf-8"
STREAM: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
"""The head of a stream of events."""

_NONE: Final[Headers] = []


async def reply(
    send: Send, status: int, body: bytes = b"", kind: bytes | None = None, headers: Headers = _NONE
) -> None:
    head = [(b"content-length", b"%d" % len(body)), *headers]
    if kind is not None:
        head.append((b"content-type", kind))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(
    send: Send,
    status: int,
    code: int,
    message: str,
    *,
    number: RequestId | None = None,
    data: Any = None,
    headers: Headers = _NONE,
) -> None:
    await reply(send, status, error_body(code, message, number, data), JSON, headers)


def error_body(code: int, message: str, number: RequestId | None = None, data: Any = None) -> bytes:
    error = ErrorData(code, message, data).to_wire()
    return json_of({"jsonrpc": "2.0", "id": number, "error": error})


def event_of(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
LAST_EVENT: Final = b"last-event-id"
PARAM: Final = b"mcp-param-"

LEGACY: Final = frozenset((None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)))
"""Versions that a request of the legacy era may have; the handshake has none."""

MAX_BODY: Final = 4 * 1024 * 1024
"""Bytes of one body."""

_EVENTS: Final = b"text/event-stream"
_DIGITS: Final = 18
"""Digits of a size that are read; Python refuses to read thousands of them."""

_CACHED: Final = 64
"""Different values of one header whose reading is cached; a client sends the same value each time."""

_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Head:
    """The headers of a request."""

    __slots__ = ("all", "fields")

    def __init__(self, headers: Headers) -> None:
        self.all = headers  # all of them, in order; their names are in lower case
        self.fields = dict(reversed(headers))  # the first value of each

    @property
    def repeats(self) -> bool:
        return len(self.fields) < len(self.all)

    @property
    def session(self) -> str | None:
        name = self.fields.get(SESSION)
        return None if name is None else name.decode("latin-1")

    @property
    def is_legacy(self) -> bool:
        return self.fields.get(VERSION) in LEGACY

    @property
    def accepts(self) -> tuple[bool, bool]:
        """Two flags: the client takes JSON, and it takes a stream of events."""
        return _accepted(self.fields.get(b"accept", b""))

    @property
    def begins_as_json(self) -> bool:
        """True if the content type may be the one of JSON."""
        return self.fields.get(b"content-type", b"").lower().startswith(JSON)

    @property
    def is_json(self) -> bool:
        return _is_json(self.fields.get(b"content-type", b""))

    @property
    def has_body(self) -> bool:
        return b"transfer-encoding" in self.fields or self.fields.get(b"content-length", b"0") != b"0"

    @property
    def is_too_big(self) -> bool:
        size = self.fields.get(b"content-length", b"")
        return size.isdigit() and (len(size) > _DIGITS or int(size) > MAX_BODY)


@lru_cache(_CACHED)
def _is_json(kind: bytes) -> bool:
    return any(part.strip() == JSON for part in kind.partition(b";")[0].split(b","))


@lru_cache(_CACHED)
def _accepted(accept: bytes) -> tuple[bool, bool]:
    kinds = {kind.partition(b";")[0].strip().lower() for kind in accept.split(b",")}
    return (
        not kinds.isdisjoint((JSON, b"application/*", b"*/*")),
        not kinds.isdisjoint((_EVENTS, b"text/*", b"*/*")),
    )


class NoBody(Enum):
    """The reason for which a request has no body to read."""

    TOO_BIG = auto()
    CLIENT_LEFT = auto()


async def read_body(receive: Receive) -> bytes | NoBody:
    """The body of a request, if its client sends all of it and it has at most `MAX_BODY` bytes."""
    message = await receive()
    gathered: bytearray | None = None
    while message["type"] == "http.request":
        body: bytes = message.get("body", b"")
        if len(body) + (0 if gathered is None else len(gathered)) > MAX_BODY:
            return NoBody.TOO_BIG
        more = message.get("more_body", False)
        if gathered is None and not more:
            return body
        # A list of small chunks would take a hundred times the memory of their bytes.
        gathered = bytearray() if gathered is None else gathered
        gathered += body
        if not more:
            return bytes(gathered)
        message = await receive()
    return NoBody.CLIENT_LEFT


def is_wide(body: bytes) -> bool:
    """True if a body is in UTF-16 or UTF-32: JSON begins with a character of ASCII, and never with NUL."""
    return body[:2] in _BYTE_ORDER_MARKS or b"\0" in body[:4]


def header(headers: Headers, name: bytes) -> bytes | None:
    for each, value in headers:
        if each == name:
            return value
    return None
