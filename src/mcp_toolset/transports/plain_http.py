"""`PlainHttp`: a pool of HTTP/1.1 connections without TLS to one server; httpcore2 parses the messages."""

from __future__ import annotations

import asyncio
import logging
import re
import select
from collections import deque
from contextlib import suppress
from typing import Any, Final, cast

import anyio
import httpcore2

from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.security.egress import Refusal
from mcp_toolset.transports.allowance import PER_CHUNK, PER_INTERIM, PER_PIECE, Allowance, FloodError

_log = logging.getLogger("mcp_toolset.upstream")

KEPT_OPEN: Final = 4.0
"""Seconds for which an idle connection is kept, less than servers keep theirs (uvicorn and Node: 5).

A request on a connection that the server closes at this moment is lost.
"""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream. Reading has no limit of its own: calls
have their deadlines, and a stream of changes may be silent for days."""

AHEAD: Final = 16 * 1024
"""The first size of the receive buffer in bytes; it doubles with each read of the same response."""

MAX_READ: Final = 256 * 1024
"""The largest size of the receive buffer in bytes; with more unread bytes, reading from the server pauses."""

_NOTHING: Final = memoryview(b"")


_PARTS_PER_TURN: Final = 16
"""The number of parts that are read before other tasks get a turn."""


class HttpConnection(httpcore2.AsyncHTTP11Connection):
    """The HTTP/1.1 protocol of one connection, limited by an `Allowance`."""

    def __init__(self, stream: Socket, origin: httpcore2.Origin, allowance: Allowance) -> None:
        super().__init__(origin, stream, KEPT_OPEN)
        self._allowance = allowance
        self._turn, self._parts = Turn(), 0

    async def _receive_event(self, timeout: float | None = None) -> Any:
        self._parts += 1
        if not self._parts % _PARTS_PER_TURN:
            await self._turn.pause()
        event: Any = await super()._receive_event(timeout)
        data = getattr(event, "data", None)
        if data is not None and len(data) < PER_PIECE:
            self._allowance.spend(PER_CHUNK)
        elif getattr(event, "status_code", 200) < 200:
            self._allowance.spend(PER_INTERIM)
        return event

    @property
    def has_excess(self) -> bool:
        """True if the server has sent bytes after the end of the response."""
        return bool(self._h11_state.trailing_data[0])


class Socket(asyncio.BufferedProtocol, httpcore2.AsyncNetworkStream):
    """One TCP connection as a stream for httpcore2; written bytes are sent with the next read."""

    def __init__(self, origin: httpcore2.Origin, allowance: Allowance) -> None:
        self.http = HttpConnection(self, origin, allowance)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._buffer = _NOTHING
        self._room = AHEAD
        self._chunks: list[memoryview | bytes] = []
        self._out: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._full = self._paused = False
        self._fault: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = memoryview(bytearray(self._room))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Queue the received bytes; pause above a size, which grows, until the next read."""
        part, self._buffer = self._buffer[:nbytes], _NOTHING
        # A small part is copied, so that it does not keep a large buffer alive.
        self._chunks.append(part if 2 * nbytes > self._room else part.tobytes())
        self._size += nbytes
        if self._size > MAX_READ or self._size >= self._room < MAX_READ:
            self._room = min(2 * self._room, MAX_READ)
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._full, self._fault = True, False, exc
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._out.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._paused and not self._chunks:
            self._paused = False
            self._transport.resume_reading()
        if self._out:
            await self._flush()
        while not self._chunks:
            if self._fault is not None:
                raise httpcore2.ReadError(str(self._fault))
            if self._ended:
                return b""
            await self._wait()
        # The parser of httpcore2 takes any bytes-like object.
        data = cast("bytes", self._chunks[0]) if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return data

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """The value for `is_readable`: true if an idle connection has bytes or is closed."""
        if info != "is_readable":
            return None
        return bool(self._chunks) or self._ended or self._has_input()

    def _has_input(self) -> bool:
        """True if the socket has input, such as its end, that the event loop has not read yet."""
        number = self._transport.get_extra_info("socket").fileno()
        if not hasattr(select, "poll"):
            return bool(select.select([number], [], [], 0)[0])
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    async def _flush(self) -> None:
        if self._ended:
            raise httpcore2.ConnectError("the server has closed the connection")
        self._room = AHEAD
        self._transport.write(b"".join(self._out))
        self._out.clear()
        if self._full:
            with anyio.move_on_after(CONNECT_TIMEOUT) as scope:
                # A server may answer or close before it has read the whole request.
                while self._full and not self._chunks and not self._ended:
                    await self._wait()
            if scope.cancelled_caught:
                raise httpcore2.WriteTimeout(f"nothing could be written for {CONNECT_TIMEOUT:g} s")

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


MAX_IDLE: Final = 256
"""The number of idle connections that are kept."""

FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, FloodError)
"""Errors of a request over a plain connection."""

_MAX_URLS: Final = 8  # parsed URLs that are kept
_PLAIN_URL: Final = re.compile(r"http://[\w.:\[\]-]+(?:[/?][!$-;=?-\[\]_a-z~]*)?", re.ASCII)
Headers = list[tuple[bytes, bytes]]
_ADDRESS: Final = re.compile(r"localhost|[\d.]+|[\da-fA-F:.]*:[\da-fA-F:.]*")
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of the host is tried in parallel (happy eyeballs)."""


class PlainHttp:
    """The connections to one server, idle ones for the next requests."""

    def __init__(self, url: str, allowance: Allowance, refusal: Refusal | None = None) -> None:
        self._allowance, self._refusal = allowance, refusal
        self._urls = {url: httpcore2.URL(url)}
        self._origin = self._urls[url].origin
        self._idle: deque[Socket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @staticmethod
    def takes(url: str) -> bool:
        """True for an address of plain HTTP."""
        return _PLAIN_URL.fullmatch(url) is not None

    def reaches(self, url: str) -> bool:
        """True for an address of the same origin."""
        if url not in self._urls:
            if not self.takes(url) or (parsed := httpcore2.URL(url)).origin != self._origin:
                return False
            if len(self._urls) > _MAX_URLS:
                self._urls.popitem()
            self._urls[url] = parsed
        return True

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None
    ) -> tuple[httpcore2.Response, Socket]:
        request = httpcore2.Request(method, self._urls[url], headers=headers, content=body)
        connection = self._reusable()
        if connection is not None:
            # After a `ConnectError` nothing has been sent.
            with suppress(httpcore2.ConnectError):
                return await _response(connection, request), connection
        connection = await self._connect()
        return await _response(connection, request), connection

    def give_back(self, connection: Socket) -> None:
        if not connection.http.is_idle():
            return
        if connection.http.has_excess:
            # The bytes would be read as the answer to the next request.
            _log.debug("%s sent bytes after its answer; the connection is closed", self._origin)
            return connection.abort()
        self._idle.append(connection)
        if self._closed or len(self._idle) > MAX_IDLE:
            self._idle.popleft().abort()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep)

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _reusable(self) -> Socket | None:
        """The open connection that was used last; `None` without one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.http.has_expired():
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        while self._idle and self._idle[0].http.has_expired():
            self._idle.popleft().abort()
        self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep) if self._idle else None

    async def _connect(self) -> Socket:
        loop, origin = asyncio.get_running_loop(), self._origin
        connection, host = Socket(origin, self._allowance), origin.host.decode()
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop) and not _ADDRESS.fullmatch(host):
            # Other loops do not race addresses. A cancelled race may leave a socket open, so a host with a
            # single address gets none.
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                transport, _ = await loop.create_connection(lambda: connection, host, origin.port, **options)
            peer = transport.get_extra_info("peername")
            if self._refusal is not None and (refusal := self._refusal(str(origin), peer[0])):
                transport.abort()
                raise OSError(refusal)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection within {CONNECT_TIMEOUT:g} s") from None
        # A host name that DNS does not allow is a UnicodeError.
        except (OSError, UnicodeError) as fault:
            raise httpcore2.ConnectError(str(fault)) from None
        return connection


async def _response(connection: Socket, request: httpcore2.Request) -> httpcore2.Response:
    """Send a request; returns the head of the response. A failed or cancelled one closes its connection."""
    try:
        return await connection.http.handle_async_request(request)
    except BaseException:
        connection.abort()
        raise
