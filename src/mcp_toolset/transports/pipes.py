"""`PipePair`: a connection over two descriptors, driven by readiness callbacks of asyncio's loop.

No task, no thread and no stream stands between a message and the code that takes it: bytes are handed
on where they are read, and are written where they come from as long as the pipe has room. What it has
no room for waits here; `has_room` and `room` let those who write wait instead of piling up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final

PIPES: Final = "MCP_TOOLSET_PIPES"
HIGH_WATER: Final = 4 * 1024 * 1024
"""Bytes that may wait for a reader; who wants to send more waits."""

_CHUNK: Final = 65536
_BIG_CHUNK: Final = 1024 * 1024
PIPE_BUF: Final = 4096
"""Bytes that a pipe with room takes at once (POSIX)."""

_TIME_TO_READ: Final = 0.001
"""Seconds that are left to the reader of something big once a pipe is full."""

_log = logging.getLogger("mcp_toolset.wire")

Writing = Callable[[memoryview], int]
"""Writes as many bytes as fit, and says how many; `BlockingIOError` if none fit."""


def _ignored(chunk: bytes) -> None:
    """Read and forget."""


def _nothing() -> None:
    """Take no notice of the end."""


class PipePair:
    """Bytes in and bytes out. The descriptors belong to the caller, and are not closed here."""

    def __init__(self, reader: int, writer: int, write: Writing | None = None) -> None:
        """Drive two descriptors; `reader` at least does not block.

        Args:
            reader: Where bytes come from.
            writer: Where bytes go.
            write: How to write without blocking; by default `writer` does not block by itself.
        """
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = reader, writer
        self._write_some: Writing = write or partial(os.write, writer)
        self._chunk = _CHUNK
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self.has_room = True
        """Whether more may be sent without waiting."""
        self._together: list[bytes] = []
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._on_bytes: Callable[[bytes], None] = _ignored
        self._on_end: Callable[[], None] = _nothing
        self._context = copy_context()
        self._reading = self._ended = self._broken = self._wide = self._always = False
        self._next: asyncio.Handle | None = None
        self.fault: Exception | None = None
        self.sent = 0
        """Bytes that the other side's pipe has taken."""

    def start(
        self, on_bytes: Callable[[bytes], None] = _ignored, on_end: Callable[[], None] = _nothing
    ) -> None:
        """Hand on every chunk as it comes, in the caller's context; `on_end` is called at the end.

        The end is that nothing more comes, that nothing more can be sent, or that taking what came
        has raised (`fault`).
        """
        self._on_bytes, self._on_end, self._context = on_bytes, on_end, copy_context()
        self._always = never_waits(self._reader)
        self.pause()
        self.resume()

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            if self._next is not None:
                self._next.cancel()
            else:
                self._loop.remove_reader(self._reader)

    def resume(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            # What arrives belongs to no task, whichever task resumes reading, and gets the context of none.
            if self._always:
                self._next = self._loop.call_soon(self._read_on, context=self._context)
            else:
                self._context.run(self._loop.add_reader, self._reader, self._readable)

    def _read_on(self) -> None:
        """Read a file, which is always ready and which no loop can wait for."""
        self._next = self._loop.call_soon(self._read_on, context=self._context)
        self._readable()

    def stop(self) -> None:
        """Read and write no more; what was not sent is dropped."""
        self.pause()
        self._ended = True
        self._drop()

    def close_writer(self) -> None:
        """Write no more; what was not sent is dropped."""
        self._drop()

    def is_cut(self) -> bool:
        return self._broken or is_cut(self._writer)

    async def room(self) -> None:
        while not self.has_room and not self._broken:
            await self._room.wait()

    async def flushed(self) -> None:
        """Wait until all is sent, or nothing can be any more."""
        self._send_together()
        while self._unsent:
            await self._empty.wait()

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a line, now or as soon as there is room.

        Args:
            line: Without its end.
            rest: Further parts of it.
            more: Whether others are likely to follow in this turn of the loop; they then go together.
        """
        if more and not rest and len(line) < PIPE_BUF:
            self._together.extend((line, b"\n"))
            if len(self._together) == 2:
                self._context.run(self._loop.call_soon, self._send_together)
            return
        if self._together:
            self._send_together()
        if not rest and len(line) < _CHUNK:
            self._write(line + b"\n")
            return
        for part in (line, *rest, b"\n"):
            self._write(part)

    def _send_together(self) -> None:
        lines, self._together = self._together, []
        if lines:
            self._write(b"".join(lines))

    def _write(self, data: bytes) -> None:
        if self._broken:
            return
        left = memoryview(data)
        if not self._unsent:
            left = left[self._pushed(left) :]
            if not left or self._broken:
                return
            self._room, self._empty = asyncio.Event(), asyncio.Event()
            if len(left) > _CHUNK and not self._wide:
                self._wide = True
                widened(self._writer)
            self._loop.add_writer(self._writer, self._writable)
        self._unsent.append(left)
        self._unsent_size += len(left)
        self.has_room = self._unsent_size < HIGH_WATER

    def _pushed(self, data: memoryview) -> int:
        size = len(data)
        done = 0
        try:
            while done < size:
                done += self._write_some(data[done:] if done else data)
        except BlockingIOError:
            pass
        except OSError:
            self._break()
        self.sent += done
        return done

    def _writable(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            done = self._pushed(first)
            self._unsent_size -= done
            self.has_room = self._unsent_size < HIGH_WATER
            if self._broken:
                return
            if done < len(first):
                self._unsent[0] = first[done:]
                if done < _CHUNK < len(first) and self._wide:
                    self._leave_time()
                break
            self._unsent.popleft()
        if not self._unsent:
            self._loop.remove_writer(self._writer)
            self._empty.set()
        if self.has_room:
            self._room.set()
            if self._unsent:
                self._room = asyncio.Event()

    def _leave_time(self) -> None:
        """Let the reader take more than the one page that a full pipe is writable for again."""
        self._loop.remove_writer(self._writer)
        self._loop.call_later(_TIME_TO_READ, self._write_again)

    def _write_again(self) -> None:
        if self._unsent:
            self._loop.add_writer(self._writer, self._writable)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._reader, self._chunk)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.pause()
            self._ended = True
            self._on_end()
            return
        # A whole chunk is a part of something big; small ones are read into small buffers.
        self._chunk = _BIG_CHUNK if len(chunk) >= _CHUNK else _CHUNK
        self.guarded(self._on_bytes, chunk)

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Do a part of the reader's work in a callback of the loop; if it raises, the connection ends.

        The loop would log it and go on: messages would be lost, and what waits for them would wait for ever.
        """
        try:
            work(*what)
        # Whatever it is: what was taken of the connection is unknown, so that it cannot be used any more.
        except Exception as raised:
            _log.error("a connection was closed, because handling a message failed", exc_info=raised)
            self.fault = raised
            self.stop()
            self._on_end()

    def _break(self) -> None:
        self._drop()
        self._context.run(self._loop.call_soon, self._on_end)

    def _drop(self) -> None:
        self._broken = True
        if self._unsent:
            self._loop.remove_writer(self._writer)
            self._unsent.clear()
        self._unsent_size = 0
        self.has_room = True
        self._room.set()
        self._empty.set()


def lean() -> bool:
    """Whether pipes are driven here: on asyncio, where its loop can wait for descriptors (not Windows).

    `MCP_TOOLSET_PIPES=sdk` in the environment says that the SDK's transports are wanted all the same.
    """
    if os.environ.get(PIPES) == "sdk" or sys.platform == "win32":
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def can_wait(descriptor: int) -> bool:
    """Whether a descriptor is a pipe, a socket or a terminal, so that its readiness can be waited for."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def is_cut(descriptor: int) -> bool:
    """Whether the other end of a pipe or socket that is written to is closed."""
    look = select.poll()
    look.register(descriptor, 0)
    return bool(look.poll(0))


def never_waits(descriptor: int) -> bool:
    """Whether a descriptor gives and takes bytes at once, as a file does, and the null device."""
    try:
        found = os.fstat(descriptor)
        return stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull))
    except OSError:
        return False


def widened(descriptor: int) -> None:
    """Give a pipe the room for a big message, where the system lets one ask for it."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _BIG_CHUNK)
