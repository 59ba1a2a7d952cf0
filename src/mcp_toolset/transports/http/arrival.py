"""How a request over HTTP arrives: which parser reads it, and how long its head and its body may take."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http import h11_impl
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_toolset.concurrency.tasks import new_scope
from mcp_toolset.errors import DefinitionError
from mcp_toolset.transports.http.messages import reply

_LATE: Final = b"The request did not arrive in time"
_STOPPING: Final = b"The server stops"
_AMBIGUOUS: Final = b"A request has Transfer-Encoding or Content-Length, not both"

# Python before 3.11.4 takes a group that is repeated with `++` for one that fits anything.
_HEAD: Final = re.compile(
    rb"(?:GET|POST|DELETE) /(?!/)[\w/.?&=~-]* HTTP/1\.1\r\n"
    rb"(?:(?!(?i:upgrade|transfer-encoding|proxy-connection):)[\w-]+: ?(?:[!-~](?:[ -~]*[!-~])?)?\r\n)+\r\n"
)
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/]*)(.*)")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?(\d{1,10})\r\n")
_LONGEST_HEAD: Final = 16 * 1024
_NEED_DATA: Final = h11_impl.h11.NEED_DATA  # pyright: ignore[reportPrivateImportUsage]
MAX_ARRIVING: Final = 64 * 1024 * 1024
"""Bytes of bodies that have not arrived as a whole; beyond it the one that takes longest is given up."""

_AT_ONCE: Final = 50
"""Parts of requests, such as chunks of one byte, that h11 reads of one connection at a time."""


def checked_timeout(seconds: float) -> float:
    if not seconds > 0:
        raise DefinitionError(f"request_timeout is a positive number of seconds, not {seconds!r}")
    return seconds


class Unambiguous:
    """An application that gets no request that a proxy before it may have read in another way (RFC 9112)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request whose body has two lengths; take a target that is a whole URL by its path."""
        if scope["type"] == "http":
            fields = dict(scope["headers"])
            if b"transfer-encoding" in fields and b"content-length" in fields:
                # What one of the two leaves over would be read as the next request.
                return await reply(send, 400, _AMBIGUOUS, headers=[(b"connection", b"close")])
            if "://" in scope["path"]:
                scope = _by_path(scope)
        await self._app(scope, receive, send)


def _by_path(scope: Scope) -> Scope:
    """A request whose target is a whole URL: its authority counts, whatever `Host` says (RFC 9112, 3.2.2)."""
    root: str = scope.get("root_path", "")
    target: bytes = scope.get("raw_path") or b""
    found = _ABSOLUTE.fullmatch(target.removeprefix(root.encode()))
    if found is None:
        return scope
    authority, path = found[1], found[2] or b"/"
    headers = [(b"host", authority), *(field for field in scope["headers"] if field[0] != b"host")]
    plain = {"path": root + unquote(path.decode("latin-1")), "raw_path": root.encode() + path}
    return {**scope, **plain, "headers": headers}


class Arrivals:
    """The requests whose bodies have not arrived: one timer and one budget watch over all of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._requests: dict[ArrivingRequest, float] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, request: ArrivingRequest) -> None:
        self._requests[request] = asyncio.get_running_loop().time() + self._seconds
        if self._timer is None:
            self._arm()

    def end(self, request: ArrivingRequest) -> None:
        self._requests.pop(request, None)
        self._size -= request.size
        request.size = 0

    def came(self, request: ArrivingRequest, size: int) -> None:
        request.size += size
        self._size += size
        for oldest in [each for each in self._requests if each.size] if self._size > MAX_ARRIVING else ():
            self._give_up(oldest)
            if self._size <= MAX_ARRIVING:
                break

    def _give_up(self, request: ArrivingRequest) -> None:
        self.end(request)
        request.scope.cancel()

    def _arm(self) -> None:
        # The oldest request is the first.
        until = next(iter(self._requests.values()), None)
        if until is not None:
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for request, until in list(self._requests.items()):
            if until > now:
                break
            self._give_up(request)
        self._arm()


class ArrivingRequest:
    """One request and its response, and the scope that it runs in."""

    __slots__ = ("_arrivals", "_receive", "_send", "has_arrived", "scope", "size", "started", "unfinished")

    def __init__(self, *, has_body: bool, receive: Receive, send: Send, arrivals: Arrivals) -> None:
        self._receive = receive
        self._send = send
        self._arrivals = arrivals
        self.scope = new_scope()  # cancelled when the body is late, or when serving ends
        self.started = False
        self.unfinished = False
        self.size = 0
        self.has_arrived = not has_body  # whether the body is there, or the request is answered without it
        if not self.has_arrived:
            arrivals.begin(self)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._arrived()
        elif not self.has_arrived:
            self._arrivals.came(self, len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        if not self.started:
            self.started = True
            self._arrived()
        self.unfinished = message["type"] != "http.response.body" or message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """Complete the response of a request whose scope was cancelled: it is late, or serving ends."""
        if self.unfinished:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self.started:
            # Who reads 408 may send the request again, which has arrived, and perhaps had its effect.
            status, text = (503, _STOPPING) if self.has_arrived else (408, _LATE)
            await reply(self._send, status, text, b"text/plain", [(b"connection", b"close")])

    def forget(self) -> None:
        if not self.has_arrived:
            self._arrivals.end(self)

    def _arrived(self) -> None:
        if not self.has_arrived:
            self.has_arrived = True
            self._arrivals.end(self)


def most_connections() -> int:
    """How many connections may be open: the rest of the file descriptors is for files and mounted servers."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most * 5 // 8


def watching_heads(seconds: float, base: type[H11Protocol]) -> type[H11Protocol]:
    """`base`, a protocol of uvicorn, that ends a connection whose next request has no whole head in time."""

    class HeadInTime(base):
        cycle: Any
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                self._watch()
            else:
                self._unwatch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return HeadInTime


def leaving_room(base: type[H11Protocol], most: int, known: dict[Any, None]) -> type[H11Protocol]:
    """`base`, of which one client cannot take all connections.

    When more than `most` are open, the one is ended that has been without a whole request for the longest
    time. `known` has all that are open, in the order in which they were last answered, or else made.
    """

    class LeavingRoom(base):
        cycle: Any

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            known[self] = None
            if len(known) > most:
                # It may be this one.
                idle = next(each for each in known if each.is_idle)
                del known[idle]
                idle.transport.abort()

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in known:
                del known[self]
                known[self] = None

        def connection_lost(self, exc: Exception | None) -> None:
            known.pop(self, None)
            super().connection_lost(exc)

    return LeavingRoom


def taking_turns(base: type[H11Protocol]) -> type[H11Protocol]:
    """`base`, which leaves the loop to others within a body of many chunks: one read can have 40,000."""

    class InTurns(base):
        _left = _AT_ONCE
        cycle: Any
        _unwatch: Any
        _is_due = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            read = self.conn.next_event

            def next_event() -> Any:
                self._left -= 1
                return _NEED_DATA if self._left < 0 else read()

            self.conn.next_event = next_event

        def handle_events(self) -> None:
            if self._is_due:
                return
            self._left = _AT_ONCE
            super().handle_events()
            if self._left < 0:
                self._is_due = True
                self.transport.pause_reading()
                self.loop.call_soon(self._read_on)

        def _read_on(self) -> None:
            self._is_due = False
            if self.transport.is_closing():
                return
            self.handle_events()
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            if not self._is_due and not self.flow.read_paused:
                self.transport.resume_reading()

    return InTurns


def reading(seconds: float, fastest: Any = AutoHTTPProtocol) -> type[asyncio.Protocol]:
    """The protocol for uvicorn, which ends a connection whose head is not there after `seconds`.

    `fastest` is uvicorn's choice: httptools where it is installed, else h11. uvicorn with httptools takes a
    head without end, loses the body of a request that offers another protocol, as Java's client offers
    HTTP/2, and does not tell a call that its client has left while another request waits behind it.
    So httptools reads one whole request at a time. The first of another kind makes h11 read the connection.
    """
    most, known = most_connections(), dict[Any, None]()
    by_h11 = leaving_room(taking_turns(watching_heads(seconds, H11Protocol)), most, known)
    if fastest is H11Protocol:
        return by_h11
    # Both classes have the members that are used here.
    return _reading_plain(leaving_room(watching_heads(seconds, fastest), most, known), by_h11)


def size_of_plain(data: bytes) -> int | None:
    """The size of the request that `data` begins with, if its head is whole and read alike by both."""
    found = _HEAD.match(data, 0, _LONGEST_HEAD)
    if found is None:
        return None
    head = found[0].lower()
    length, named = _LENGTH.search(head), head.count(b"\r\ncontent-length:")
    if head.count(b"\r\nhost:") != 1 or named != (length is not None):
        return None
    return len(head) + (int(length[1]) if length else 0)


def _reading_plain(fast: type[H11Protocol], by_h11: type[H11Protocol]) -> type[H11Protocol]:
    class ReadingPlain(fast):
        cycle: Any
        _missing = 0
        """Bytes of the request that have not arrived."""
        _waiting = b""
        """What arrived behind a request that is not answered."""

        def data_received(self, data: bytes) -> None:
            if not self._missing:
                if self.cycle is not None and not self.cycle.response_complete:
                    self._waiting += data
                    if len(self._waiting) > _LONGEST_HEAD:
                        self.flow.pause_reading()
                    return
                size = size_of_plain(data)
                if size is None:
                    self._hand_over(data)
                    return
                self._missing = size
            now, behind = data[: self._missing], data[self._missing :]
            self._missing -= len(now)
            super().data_received(now)
            if behind:
                self.data_received(behind)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            waiting, self._waiting = self._waiting, b""
            if waiting and not self.transport.is_closing():
                self.data_received(waiting)

        def _hand_over(self, data: bytes) -> None:
            other = by_h11(self.config, self.server_state, self.app_state, self.loop)
            self.transport.set_protocol(other)
            # It ends the timers of this one, too.
            super().connection_lost(RuntimeError("h11 reads on"))
            self._unset_keepalive_if_required()
            other.connection_made(self.transport)
            other.data_received(data)

    return ReadingPlain
