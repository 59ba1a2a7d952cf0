"""`Socket`: one TCP connection for the HTTP/1.1 of httpcore2, straight from asyncio."""

from __future__ import annotations

import asyncio
import select
from typing import Any, Final, cast

import anyio
import httpcore2

from mcp_toolset.concurrency.turns import Turn
from mcp_toolset.transports.flood import PER_INTERIM, PER_PIECE, Allowance

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
        """Speak over `stream`; interim responses and pieces of bodies count in `allowance`."""
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
            self._allowance.spend(PER_PIECE)
        elif getattr(event, "status_code", 200) < 200:
            self._allowance.spend(PER_INTERIM)
        return event

    @property
    def has_excess(self) -> bool:
        """Whether bytes have come after the end of the response, which no request has asked for."""
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
        """Keep what goes out with the next read."""
        self._out.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Send what was written, and wait for an answer."""
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
        """Whether an idle connection is one no more; nothing else is asked here."""
        return (bool(self._chunks) or self._ended or self._has_input()) if info == "is_readable" else None

    def _has_input(self) -> bool:
        """Whether the loop will find something to read, such as the end, that it has not looked for yet."""
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
