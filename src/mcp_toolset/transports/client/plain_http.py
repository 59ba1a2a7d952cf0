"""`PlainHttp`: requests to one `http:` origin over connections that are kept, with little work for each.

httpx2 takes three times as much CPU for a request as the HTTP/1.1 connection below it (`httpcore2`). Where no
proxy, TLS, login flow, cookie or redirect is involved, that connection is used directly.
"""

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
from mcp_toolset.transports.backpressure import PER_CHUNK, PER_INTERIM, PER_PIECE, Allowance, FloodError

KEPT_OPEN: Final = 4.0
"""Seconds that an idle HTTP connection is kept: servers close theirs after 5 (uvicorn, Node). A request that
meets that moment is lost."""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream. Reading has no limit of its own: calls
have their deadlines, and a stream of changes may be silent for days."""

AHEAD: Final = 16 * 1024
"""Bytes of a response that are received at first. Each time that it is read on, twice as many may come."""

MAX_READ: Final = 256 * 1024
"""Bytes that are received at once at most, and wait to be read before the server is held back."""

_NOTHING: Final = memoryview(b"")


_AT_ONCE: Final = 16
"""Parts of responses that are read before others may have their turn."""


class Exchanges(httpcore2.AsyncHTTP11Connection):
    """The requests and responses of one connection."""

    def __init__(self, stream: Socket, origin: httpcore2.Origin, allowance: Allowance) -> None:
        super().__init__(origin, stream, KEPT_OPEN)
        self._allowance = allowance
        self._turn, self._parts = Turn(), 0

    async def _receive_event(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        self._parts += 1
        if not self._parts % _AT_ONCE:
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
        """True if bytes have come after the end of the response, which no request has asked for."""
        return bool(self._h11_state.trailing_data[0])


class Socket(asyncio.BufferedProtocol, httpcore2.AsyncNetworkStream):
    """One TCP connection, as a stream for httpcore2; what is written goes out with the next read."""

    def __init__(self, origin: httpcore2.Origin, allowance: Allowance) -> None:
        self.http = Exchanges(self, origin, allowance)
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
        """Keep what has come, up to a size; the next read lets more come, and more at once."""
        part, self._buffer = self._buffer[:nbytes], _NOTHING
        # Little is copied, so that it does not hold a big buffer.
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

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._out.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
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
            await self._woken()
        # What it is read for, the parser of httpcore2, takes any bytes-like object.
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
        """True if an idle connection is one no more; nothing else is asked here."""
        return (bool(self._chunks) or self._ended or self._has_input()) if info == "is_readable" else None

    def _has_input(self) -> bool:
        """True if the loop will find something to read, such as the end, that it has not looked for yet."""
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
                # A server may answer, or go away, before it has read all.
                while self._full and not self._chunks and not self._ended:
                    await self._woken()
            if scope.cancelled_caught:
                raise httpcore2.WriteTimeout(f"nothing could be written for {CONNECT_TIMEOUT:g} s")

    async def _woken(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


MAX_IDLE: Final = 256
"""Idle connections that are kept."""

FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, FloodError)
"""What a request over such a connection fails with."""

_FEW: Final = 8
_PLAIN_URL: Final = re.compile(r"http://[\w.:\[\]-]+(?:[/?][!$-;=?-\[\]_a-z~]*)?", re.ASCII)
Headers = list[tuple[bytes, bytes]]
_ADDRESS: Final = re.compile(r"localhost|[\d.]+|[\da-fA-F:.]*:[\da-fA-F:.]*")
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of the host is tried as well."""

_log = logging.getLogger("mcp_toolset.upstream")


class PlainHttp:
    """The connections to one server."""

    def __init__(self, url: str, allowance: Allowance, refusal: Refusal | None = None) -> None:
        self._allowance, self._refusal = allowance, refusal
        self._urls = {url: httpcore2.URL(url)}
        self._origin = self._urls[url].origin
        self._idle: deque[Socket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @staticmethod
    def takes(url: str) -> bool:
        return _PLAIN_URL.fullmatch(url) is not None

    def reaches(self, url: str) -> bool:
        if url not in self._urls:
            if not self.takes(url) or (found := httpcore2.URL(url)).origin != self._origin:
                return False
            if len(self._urls) > _FEW:
                self._urls.popitem()
            self._urls[url] = found
        return True

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None
    ) -> tuple[httpcore2.Response, Socket]:
        request = httpcore2.Request(method, self._urls[url], headers=headers, content=body)
        connection = self._kept()
        if connection is not None:
            # Without a connection after all, nothing has been sent.
            with suppress(httpcore2.ConnectError):
                return await _response(connection, request), connection
        connection = await self._connect()
        return await _response(connection, request), connection

    def give_back(self, connection: Socket) -> None:
        if not connection.http.is_idle():
            return
        if connection.http.has_excess:
            # They would be read as the answer to the next request.
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

    def _kept(self) -> Socket | None:
        """The connection that was used last, if it can be used again."""
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
            # Other loops race no addresses. A race that is cancelled may leave a socket open; one address
            # needs none.
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                transport, _ = await loop.create_connection(lambda: connection, host, origin.port, **options)
            peer = transport.get_extra_info("peername")
            if self._refusal is not None and (why := self._refusal(str(origin), peer[0])):
                transport.abort()
                raise OSError(why)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection within {CONNECT_TIMEOUT:g} s") from None
        # A name that cannot be one in DNS is a UnicodeError.
        except (OSError, UnicodeError) as fault:
            raise httpcore2.ConnectError(str(fault)) from None
        return connection


async def _response(connection: Socket, request: httpcore2.Request) -> httpcore2.Response:
    """The head of the response; the connection of a request that fails or is cancelled is closed."""
    try:
        return await connection.http.handle_async_request(request)
    except BaseException:
        connection.abort()
        raise
