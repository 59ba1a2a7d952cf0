"""Serving on standard input and output, so that a signal or a closed pipe ends it at once.

The SDK's transport reads standard input in a worker thread, which cannot be interrupted: a server
told to stop would hang until the client writes again (F44). Here both pipes are driven by
readiness. While serving, descriptor 0 is empty and descriptor 1 leads to stderr, so that a print or
a child cannot corrupt the protocol (F45). Where descriptors cannot be waited for (Windows, files),
the SDK's transport is used.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mcp_toolset.bridge.sdk import Server

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes of one incoming message; a longer line is answered with an error and skipped (F33)."""

_CHUNK: Final = 262_144
_PIPE_BUF: Final = 4096
_HEAD: Final = 256

Incoming = SessionMessage | Exception


class OversizeError(ValueError):
    """An incoming line was longer than `MAX_MESSAGE` and was skipped."""


class LineBuffer:
    """Splits a stream of bytes into lines in linear time, skipping lines over a limit."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        """Skip lines of more than `limit` bytes."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.head = b""
        """The first bytes of the last line that was too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that `chunk` completes; `None` for one that was too long."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield b"".join(self._parts) if self._size <= self._limit else None
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        elif self._size - len(part) <= self._limit:
            self.head = _start_of((*self._parts, part))
            self._parts = []


def _start_of(parts: Iterable[bytes]) -> bytes:
    head = b""
    for part in parts:
        head += part[: _HEAD - len(head)]
        if len(head) == _HEAD:
            break
    return head


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes standard input, or the task is cancelled."""
    streams = pipe_streams if _can_wait(0) and _can_wait(1) else stdio_server
    async with streams() as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def pipe_streams() -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    """Message streams over this process's standard pipes."""
    incoming, read = anyio.create_memory_object_stream[Incoming](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    with _claimed() as (reader, writer):
        async with anyio.create_task_group() as group:
            group.start_soon(_read_lines, reader, incoming)
            group.start_soon(_write_lines, writer, outgoing)
            with incoming, read, write, outgoing:
                yield read, write
            group.cancel_scope.cancel()


async def _read_lines(descriptor: int, incoming: MemoryObjectSendStream[Incoming]) -> None:
    lines = LineBuffer()
    with incoming:
        while True:
            await anyio.wait_readable(descriptor)
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return
            for line in lines.feed(chunk):
                if line is None or line.strip():
                    try:
                        await incoming.send(_parsed(line))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return


def _parsed(line: bytes | None) -> Incoming:
    if line is None:
        return OversizeError(f"a message of more than {MAX_MESSAGE} bytes was skipped")
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as fault:
        return fault


async def _write_lines(descriptor: int, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with outgoing:
        async for item in outgoing:
            try:
                await _write(descriptor, _line(item.message))
            except OSError:
                return


def _line(message: types.JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        if not isinstance(message, types.JSONRPCResponse):
            return b""
        fault = types.ErrorData(code=types.INTERNAL_ERROR, message="the result has no JSON form")
        error = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=fault)
        return error.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


async def _write(descriptor: int, line: bytes) -> None:
    left, room = memoryview(line), select.poll()
    room.register(descriptor, select.POLLOUT)
    while left:
        if not room.poll(0):
            await anyio.wait_writable(descriptor)
        # A pipe that polls writable takes this much without blocking (POSIX, PIPE_BUF).
        left = left[os.write(descriptor, left[:_PIPE_BUF]) :]


@contextmanager
def _claimed() -> Generator[tuple[int, int]]:
    """Private duplicates of the standard pipes; the public ones are diverted meanwhile."""
    sys.stdout.flush()
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2 if _is_open(2) else nothing, 1)
    os.close(nothing)
    try:
        yield reader, writer
    finally:
        # What was printed and not yet flushed must not come out on the protocol's pipe at exit.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(reader, 0)
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _can_wait(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
