"""`child_streams`: a server as a child process, spoken to over its standard pipes.

Lines are split in linear time and capped (F11). What is no message is skipped and counted, and too
much of it ends the connection (F8); an answer that cannot be read fails its own request at once
(F9). Whatever way the connection ends, the child's whole process group ends with it: its input is
closed, then SIGTERM, then SIGKILL, each after a bounded wait (F44).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, TextIO

import anyio
import anyio.abc
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mcp_toolset.bridge.stdio import MAX_MESSAGE, Incoming, LineBuffer
from mcp_toolset.errors import UpstreamUnavailableError

MAX_GARBAGE: Final = 1000
"""Lines in a row that may be no messages before the connection is given up (F8)."""

GRACE: Final = 2.0
"""Seconds that a child is given to end by itself, and again after SIGTERM."""

_FLUSH: Final = 0.5
_AFTER_KILL: Final = 0.2
"""Nothing survives SIGKILL, but what nobody reaps still counts as a member of its group."""

_POLL: Final = 0.01
_CHUNK: Final = 262_144
_QUEUE: Final = 1024
"""Messages that wait for a child that does not read, so that a cancellation need not wait as well (F4)."""

_ID_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
    rb'"(?:result|error)"'
)
_ANSWER: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')

Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def child_streams(
    parameters: StdioServerParameters, errors: TextIO, *, name: str
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a child and yield its message streams; it ends with the block.

    Where pipes cannot be waited for (Windows), the SDK's transport is used.

    Args:
        parameters: The command, with the environment that is added to the safe part of ours.
        errors: Where its stderr goes.
        name: The name it is mounted under, for messages.

    Raises:
        OSError: the command cannot be started.
        UpstreamUnavailableError: it wrote too much that is no message.
    """
    if sys.platform == "win32" or parameters.encoding.lower() not in ("utf-8", "utf8"):
        async with stdio_client(parameters, errlog=errors) as streams:
            yield streams
        return
    with _Pipe() as stdin, _Pipe() as stdout:
        process = await anyio.open_process(
            [parameters.command, *parameters.args],
            stdin=stdin.reader,
            stdout=stdout.writer,
            stderr=errors,
            env=get_default_environment() | (parameters.env or {}),
            cwd=parameters.cwd,
            start_new_session=True,
        )
        stdin.close_reader()
        stdout.close_writer()
        async with _Child(name, process, stdin, stdout).opened() as streams:
            yield streams


class _Pipe:
    """The two ends of a pipe, each closed once; ours never block."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def close_reader(self) -> None:
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_reader()
        self.close_writer()


class _Child:
    """A running child and the two tasks at its pipes.

    The tasks are shielded and end when the child has been stopped: a child that finds its output
    full could not read that its input has ended.
    """

    def __init__(self, name: str, process: anyio.abc.Process, stdin: _Pipe, stdout: _Pipe) -> None:
        self._name = name
        self._process = process
        self._stdin, self._stdout = stdin, stdout
        os.set_blocking(stdin.writer, False)
        os.set_blocking(stdout.reader, False)
        self._incoming, self._read_end = anyio.create_memory_object_stream[Incoming](0)
        self._write_end, self._outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
        self._reading, self._writing = anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)
        self._flushed = anyio.Event()
        self._skipped = self._skipped_in_a_row = 0
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Streams]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._read)
            group.start_soon(self._write)
            try:
                yield self._read_end, self._write_end
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop()

    async def _stop(self) -> None:
        self._read_end.close()
        self._write_end.close()
        with anyio.move_on_after(_FLUSH):
            await self._flushed.wait()
        self._writing.cancel()
        await self._flushed.wait()
        self._stdin.close_writer()
        with anyio.move_on_after(GRACE):
            await self._process.wait()
        await _end_group(self._process.pid)
        with anyio.move_on_after(GRACE):
            await self._process.wait()
        self._reading.cancel()
        if self._skipped:
            self._log.warning("%d lines of its stdout were no messages and were skipped", self._skipped)

    async def _read(self) -> None:
        lines = LineBuffer(MAX_MESSAGE)
        try:
            with self._incoming, self._reading:
                while chunk := await _received(self._stdout.reader):
                    for line in lines.feed(chunk):
                        await self._take(lines.head if line is None else line, whole=line is not None)
        finally:
            self._stdout.close_reader()

    async def _take(self, line: bytes, *, whole: bool) -> None:
        message = _message(line) if whole else None
        message = message or _failed_answer(line, whole=whole)
        if message is not None:
            self._skipped_in_a_row = 0
            await self._deliver(message)
        elif line.strip():
            self._skipped += 1
            self._skipped_in_a_row += 1
            if self._skipped_in_a_row > MAX_GARBAGE:
                raise UpstreamUnavailableError(
                    self._name, f"more than {MAX_GARBAGE} lines in a row on its stdout were no messages"
                )

    async def _deliver(self, message: SessionMessage) -> None:
        try:
            await self._incoming.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._log.debug("a message came after the end of the session")

    async def _write(self) -> None:
        try:
            with self._outgoing, self._writing:
                async for item in self._outgoing:
                    await self._send(item)
        except OSError:
            # It has closed its input: the session must see an end, or its requests would wait.
            self._incoming.close()
        finally:
            self._flushed.set()

    async def _send(self, item: SessionMessage) -> None:
        try:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        except ValueError as fault:
            if isinstance(item.message, types.JSONRPCRequest):
                await self._deliver(
                    _failure(item.message.id, types.INVALID_PARAMS, f"no JSON can carry this: {fault}")
                )
            return
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._stdin.writer, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.writer)


async def _received(descriptor: int) -> bytes:
    while True:
        await anyio.wait_readable(descriptor)
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            continue


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return None


def _failed_answer(line: bytes, *, whole: bool) -> SessionMessage | None:
    """An error in place of an answer that is too long or cannot be read, if it says what it answers (F9)."""
    start = line[:256]
    found = _ID_FIRST.match(start) or (_ANSWER.match(start) and whole and _ID_LAST.search(line[-64:]))
    if not found:
        return None
    fault = "cannot be read" if whole else f"has more than {MAX_MESSAGE} bytes"
    return _failure(int(found[1]), types.PARSE_ERROR, f"its answer {fault}")


def _failure(request: types.RequestId, code: int, message: str) -> SessionMessage:
    error = types.ErrorData(code=code, message=message)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))


async def _end_group(group: int) -> None:
    """End what is left of a process group, also when its leader has gone before."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, _AFTER_KILL)):
        if not _signalled(group, number):
            return
        with anyio.move_on_after(patience):
            # Nobody is told when a group of processes is empty.
            while _signalled(group, 0):  # noqa: ASYNC110
                await anyio.sleep(_POLL)


def _signalled(group: int, number: int) -> bool:
    """Send a signal; `False` when there is nobody left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
