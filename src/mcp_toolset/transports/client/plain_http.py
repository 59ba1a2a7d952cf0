"""`PlainHttp`: requests to one `http:` origin over connections that are kept, with little work for each.

httpx2 takes three times as much CPU for a request as the HTTP/1.1 connection below it (`httpcore2`). Where no
proxy, TLS, login flow, cookie or redirect is involved, that connection is used directly.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Any, Final

import anyio
import httpcore2

KEPT_OPEN: Final = 4.0
"""Seconds that an idle HTTP connection is kept: servers close theirs after 5 (uvicorn, Node). A request that
meets that moment is lost."""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream. Reading has no limit of its own: calls
have their deadlines, and a stream of changes may be silent for days."""

MAX_IDLE: Final = 256
"""Idle connections that are kept."""

MAX_READ: Final = 256 * 1024
"""Bytes that wait to be read before the server is held back."""

FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""What a request over such a connection fails with."""

_FEW: Final = 8
_PLAIN_URL: Final = re.compile(r"http://[\w.:\[\]-]+(?:[/?][!$-;=?-\[\]_a-z~]*)?", re.ASCII)
Headers = list[tuple[bytes, bytes]]
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of the host is tried as well."""

_TIMEOUTS: Final = {"timeout": {"write": CONNECT_TIMEOUT}}


class Socket(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One TCP connection, as a stream for httpcore2; what is written goes out with the next read."""

    def __init__(self, origin: httpcore2.Origin) -> None:
        """Wait for the connection to be made."""
        self.http = httpcore2.AsyncHTTP11Connection(origin, self, KEPT_OPEN)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._chunks: list[bytes] = []
        self._out: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._full = self._paused = False
        self._fault: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > MAX_READ and not self._paused:
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
        if self._ended:
            raise httpcore2.WriteError("the connection is closed")
        self._out.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._out:
            await self._flush()
        while not self._chunks:
            if self._fault is not None:
                raise httpcore2.ReadError(str(self._fault))
            if self._ended:
                return b""
            await self._woken()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._ended = True
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        return bool(self._chunks or self._ended) if info == "is_readable" else None

    async def _flush(self) -> None:
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


class PlainHttp:
    """The connections to one server."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet."""
        self._urls = {url: httpcore2.URL(url)}
        self._origin = self._urls[url].origin
        self._idle: deque[Socket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @staticmethod
    def takes(url: str) -> bool:
        """Whether a URL needs no encryption, no credentials of its own and no escaping."""
        return _PLAIN_URL.fullmatch(url) is not None

    def reaches(self, url: str) -> bool:
        """Whether a URL leads to this server."""
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
        """Send a request to a URL that is reached; the response is to be closed, and its connection given back then.

        Raises:
            Exception: one of `FAULTS`.
        """
        request = httpcore2.Request(
            method, self._urls[url], headers=headers, content=body, extensions=_TIMEOUTS
        )
        connection = self._kept() or await self._connect()
        return await connection.http.handle_async_request(request), connection

    def give_back(self, connection: Socket) -> None:
        """Keep a connection whose response was closed, if another request can go over it."""
        if not connection.http.is_idle():
            return
        self._idle.append(connection)
        if self._closed or len(self._idle) > MAX_IDLE:
            self._idle.popleft().abort()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep)

    def close(self) -> None:
        """Close the idle connections, and those in use once they are given back."""
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
        """Close what has been idle for long; the oldest stand first."""
        while self._idle and self._idle[0].http.has_expired():
            self._idle.popleft().abort()
        self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep) if self._idle else None

    async def _connect(self) -> Socket:
        loop, origin = asyncio.get_running_loop(), self._origin
        connection = Socket(origin)
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                await loop.create_connection(
                    lambda: connection, origin.host.decode(), origin.port, happy_eyeballs_delay=_NEXT_ADDRESS
                )
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection within {CONNECT_TIMEOUT:g} s") from None
        except OSError as fault:
            raise httpcore2.ConnectError(str(fault)) from None
        return connection
