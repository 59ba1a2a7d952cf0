"""`LineDispatcher`: JSON-RPC over a pair of pipes, both ways, without a model or a stream per message.

Both sides of stdio use it: `stdio_server` for clients, `stdio_client` for mounted servers.
Messages are taken where their bytes arrive: an answer wakes the task that waits for it, a request or a
notification gets a task. Of what arrives the version, the types of id and method and the shape of the
parameters are checked. What is no message is skipped and counted, what cannot be read fails its own
request, and whatever could pile up has a bound.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import select
import stat
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Literal, cast

import anyio
from pydantic_core import from_json

from mcp_toolset.catalog.snapshot import LOST_CHARACTER
from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.concurrency.tasks import CancelledError, TaskSet, from_outside
from mcp_toolset.errors import ToolsetError
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.dispatch import NOT_AWAITED, OnNotify, OnNotifyIntercept, OnRequest, Started
from mcp_toolset.protocol.eras import LONG, noted, surely_parts
from mcp_toolset.protocol.server_machine import Envelope, id_of
from mcp_toolset.transports.allowance import PER_PIECE, Allowance, FloodError
from mcp_toolset.transports.pacing import BIG, UnreadResults, end_when_cut
from mcp_toolset.transports.requests import (
    FEW,
    MAX_REQUESTS,
    Channel,
    Inbox,
    Incoming,
    Outbox,
    PacedRequest,
    calling,
)

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes of one incoming message; a longer line is skipped, and its request fails or is refused."""

_HEAD: Final = 256


class Overlong(bytes):
    """The start of a line that was too long; the rest of it was skipped."""


class LineBuffer:
    """Splits a stream of bytes into lines in linear time, skipping lines over a limit."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, chunk: bytes) -> Sequence[bytes]:
        if b"\n" not in chunk:
            # A part of something big, kept as it is: `split` would copy it.
            self._add(chunk)
            return ()
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if self._size:
            self._add(lines[0])
            lines[0] = b"".join(self._parts) if self._size <= self._limit else Overlong(self._head)
            self._parts, self._size = [], 0
        if rest:
            self._add(rest)
        if len(chunk) > self._limit:
            lines = [line if len(line) <= self._limit else Overlong(line[:_HEAD]) for line in lines]
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        elif self._size - len(part) <= self._limit:
            self._head = _start_of((*self._parts, part))
            self._parts = []


def _start_of(parts: Iterable[bytes]) -> bytes:
    head = b""
    for part in parts:
        head += part[: _HEAD - len(head)]
        if len(head) == _HEAD:
            break
    return head


_TAIL: Final = 160
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID: Final = rb'"id"\s*:\s*(\d{1,15}|"[ !#-\[\]-~]{1,100}")'
_ID_FIRST: Final = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?"
    rb'"(result|error|method)"'
)
_ANSWER: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"(result|error)"')
_ID_LAST: Final = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")

Kind = Literal["request", "answer"]


def traced(line: bytes, *, whole: bool) -> tuple[Kind, json_rpc.RequestId] | None:
    """The kind and the id of a message that cannot be read, as far as its start or its end shows them."""
    head = line[:_HEAD]
    first = _ID_FIRST.match(head)
    if first is not None:
        return "request" if first[2] == b"method" else "answer", _id(first[1])
    last = _ID_LAST.search(line[-_TAIL:]) if whole and _ANSWER.match(head) else None
    return None if last is None else ("answer", _id(last[1]))


def _id(written: bytes) -> json_rpc.RequestId:
    return written[1:-1].decode() if written.startswith(b'"') else int(written)


MAX_DEPTH: Final = 150
"""Levels of a message that are kept. Schemas may have far fewer, so that a cut one is refused as too deep."""

MAX_REPAIRED: Final = 1_000_000
"""The weight that the values of a repaired message may have, each escape 1, each kilobyte 32."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A text to its end, also one that has none; or what opens or closes."""
_TOO_DEEP: Final = "it is nested too deep to be read"
_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_BACKSLASH: Final = b"\1\1"
_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
)
"""One or both halves of a character, where `_BACKSLASH` stands for a backslash in a text."""
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def repaired(line: bytes) -> Any:
    """The message in a line that could not be read strictly.

    What is nested too deep is cut in lists alone, whose entries are checked one by one.
    """
    json_rpc.check_weight(line, MAX_REPAIRED - line.count(b"\\") - len(line) // 32)
    line = _whole(line)
    try:
        return from_json(line)
    except ValueError as fault:
        if "recursion" not in str(fault):
            raise
    message = from_json(_shallow(line))
    if not _is_list(message):
        raise ValueError(_TOO_DEEP)
    return message


def _whole(line: bytes) -> bytes:
    if _BACKSLASH in line:
        raise ValueError("it has control characters")
    marked = line.removeprefix(b"\xef\xbb\xbf").replace(rb"\\", _BACKSLASH)
    lost = LOST_CHARACTER.encode()
    whole = _HALF.sub(lost, _PAIR.sub(lambda found: found[0] if found[1] else lost, marked))
    return whole.replace(_BACKSLASH, rb"\\")


def _shallow(line: bytes) -> bytes:
    """The text of a message, with `null` in the place of each part that is nested too deep."""
    pieces: list[bytes] = []
    depth = end = 0
    for found in _TOKEN.finditer(line):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                pieces += [line[end : found.start()], b"null"]
        elif found[0] in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                end = found.end()
            depth -= 1
    return b"".join([*pieces, line[end:]])


def _is_list(message: object) -> bool:
    result: object = cast("dict[str, object]", message).get("result") if isinstance(message, dict) else None
    return isinstance(result, dict) and any(key in result for key in _LISTS)


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


def _ignored(chunk: bytes) -> None: ...


def _nothing() -> None: ...


class PipePair:
    """Bytes in and bytes out. The descriptors belong to the caller, and are not closed here."""

    def __init__(self, reader: int, writer: int, write: Writing | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = reader, writer
        self._write_some: Writing = write or partial(os.write, writer)
        self._chunk = _CHUNK
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self.has_room = True
        """True if more may be sent without waiting."""
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
        self.pause()
        self._ended = True
        self.close_writer()

    def is_cut(self) -> bool:
        return self._broken or is_cut(self._writer)

    async def room(self) -> None:
        while not self.has_room and not self._broken:
            await self._room.wait()

    async def flushed(self) -> None:
        self._send_together()
        while self._unsent:
            await self._empty.wait()

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a line in parts; with `more`, together with those that follow in this turn of the loop."""
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
        try:
            self._on_bytes(chunk)
        except Exception as raised:
            self._failed(raised)

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Do a part of the reader's work in a callback of the loop; if it raises, the connection ends.

        The loop would log it and go on: messages would be lost, and what waits for them would wait for ever.
        """
        try:
            work(*what)
        except Exception as raised:
            self._failed(raised)

    def _failed(self, raised: Exception) -> None:
        # Whatever it is: what was taken of the connection is unknown, so that it cannot be used any more.
        _log.error("a connection was closed, because handling a message failed", exc_info=raised)
        self.fault = raised
        self.stop()
        self._on_end()

    def _break(self) -> None:
        self.close_writer()
        self._context.run(self._loop.call_soon, self._on_end)

    def close_writer(self) -> None:
        self._broken = True
        if self._unsent:
            self._loop.remove_writer(self._writer)
            self._unsent.clear()
        self._unsent_size = 0
        self.has_room = True
        self._room.set()
        self._empty.set()


def lean() -> bool:
    """True if pipes are driven here: on asyncio, where its loop can wait for descriptors (not Windows).

    `MCP_TOOLSET_PIPES=sdk` in the environment says that the SDK's transports are wanted all the same.
    """
    if os.environ.get(PIPES) == "sdk" or sys.platform == "win32":
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def can_wait(descriptor: int) -> bool:
    """True if a descriptor is a pipe, a socket or a terminal, so that its readiness can be waited for."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def is_cut(descriptor: int) -> bool:
    """True if the other end of a pipe or socket that is written to is closed."""
    look = select.poll()
    look.register(descriptor, 0)
    return bool(look.poll(0))


def never_waits(descriptor: int) -> bool:
    """True if a descriptor gives and takes bytes at once, as a file does, and the null device."""
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


MAX_BACKLOG: Final = 4 * 1024 * 1024
"""Bytes that are read and kept while a peer is held back; then nothing more is read."""

MAX_AHEAD: Final = 1024
"""Requests in flight of a peer that has no room for answers; beyond that nothing more is taken."""

_SLICE: Final = 256
"""Messages that are taken before what they started gets its turn."""

_BEGUN: Final = 64
"""Requests that are begun in one turn of the event loop, of which each takes a part then."""

_BEFORE: Final = b"\xef\xbb\xbf \t\r"
"""Bytes that may stand before a message on its line."""

DRAIN: Final = 1.0
"""Seconds that requests in flight, and messages not yet looked at, may take when nothing more will come."""

_LISTEN: Final = "subscriptions/listen"


class LineDispatcher(Outbox, Inbox):
    """The `Dispatcher` (`protocol.dispatch`) over a `PipePair`."""

    def __init__(
        self,
        pipes: Channel,
        *,
        inline: frozenset[str] = frozenset(),
        limit: int = MAX_MESSAGE,
        too_much: Callable[[str], ToolsetError] | None = None,
        holds_back: bool = False,
        drain: float = DRAIN,
    ) -> None:
        """Speak over `pipes`.

        Args:
            pipes: Both directions; the caller stops them.
            inline: Methods of which a request is finished before the next message is taken.
            limit: Bytes of one incoming message.
            too_much: Makes the error that ends the connection of a peer that sends too many lines of
                garbage in a row, or floods; without it, garbage is skipped for ever.
            holds_back: Begin no request of a peer that does not read what it is sent, and have upstream
                servers wait for it. For one side of a connection only: two that hold each other back
                never go on. A peer of that side that sends nothing more still gets its answers.
            drain: Seconds that the answers may take then.
        """
        Outbox.__init__(self, pipes)
        Inbox.__init__(self, too_much)
        self._inline = inline
        self._limit = limit
        self._holds_back = holds_back
        self._heaviest = json_rpc.MAX_ASKED if holds_back else json_rpc.MAX_WEIGHT
        self._drain = drain
        self._lines = LineBuffer(limit)
        self._backlog: deque[bytes] = deque()
        self._backlog_size = self._ahead = 0
        self._unread = UnreadResults(pipes)
        self._held = self._finishing = False
        self._allowance = Allowance()
        self._one_per_id = True
        self._context: Context = copy_context()
        self._idle = asyncio.Event()
        self.note_text: Callable[[bytes], None] | None = None
        """Is told of lines that are no JSON."""
        self.admit: Callable[[str, dict[str, Any] | None], Envelope | json_rpc.MCPError] | None = None
        """Decides about each request when it arrives; the served side sets it."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        self._context = copy_context()
        handling = self._handling
        try:
            self._opened = True
            self._pipes.start(self._take_chunk, self._end)
            task_status.started()
            await self._ended.wait()
            if self._fault is None and handling.fault is None:
                await self._finish(handling)
        finally:
            self._close()
            await handling.end()
            self._pipes.pause()
        fault = self._fault or handling.fault
        if fault is not None:
            raise fault

    async def _finish(self, handling: TaskSet) -> None:
        """Look at what has come and, on the served side, answer it: within `drain`, while it can be read."""
        self._finishing = True
        if not self._backlog and not (self._holds_back and handling.busy):
            return
        for incoming in self._requests.values():
            if incoming.lasts:
                incoming.scope.cancel()
        with anyio.move_on_after(self._drain):
            async with anyio.create_task_group() as group:
                if self._holds_back:
                    group.start_soon(end_when_cut, self._pipes, group.cancel_scope)
                if self._backlog:
                    await self._idle.wait()
                if self._holds_back:
                    await handling.done()
                group.cancel_scope.cancel()

    def _end(self) -> None:
        fault = self._pipes.fault
        if fault is not None and self._fault is None:
            self._fault = ToolsetError(
                "the connection was closed, because handling a message failed: "
                f"{type(fault).__name__}: {fault}"
            )
        self._ended.set()

    def _take_chunk(self, chunk: bytes) -> None:
        idle = not self._backlog and not self._held
        lines = self._lines.feed(chunk)
        if b"\n\n" in chunk:
            blank = lines.count(b"")
            lines = [line for line in lines if line]
            self._spend(PER_PIECE * (blank - 1))
        for line in lines:
            self._backlog.append(line)
            self._backlog_size += len(line)
        if idle and self._backlog_size < MAX_BACKLOG:
            self._work()
        elif idle:
            # To join a long line was the work of this turn.
            self._go_on()
        elif self._backlog_size > MAX_BACKLOG:
            self._pipes.pause()

    def _work(self) -> None:
        if self._closed:
            return
        before, turn = self._backlog_size, None
        most = len(self._requests) + _BEGUN
        for _ in range(_SLICE):
            if not self._backlog or self._held or self._fault is not None or (turn and turn.is_over):
                break
            if len(self._requests) >= most:
                break
            line = self._backlog.popleft()
            self._backlog_size -= len(line)
            self._take(line)
            # Most messages come alone.
            turn = turn or (Turn() if self._backlog else None)
        if self._finishing and not self._backlog:
            self._idle.set()
        self._ahead = 0 if self._pipes.has_room else self._ahead + before - self._backlog_size
        if self._fault is not None:
            self._pipes.pause()
        elif self._held:
            pass
        elif self._holds_back and self._ahead and self._is_ahead():
            self._hold(self._pipes.room)
        elif self._backlog:
            self._pipes.pause()
            self._go_on()
        else:
            self._pipes.resume()

    def _is_ahead(self) -> bool:
        """True if as much has been taken as may be of a peer that does not read."""
        return self._ahead > MAX_BACKLOG or len(self._requests) > MAX_AHEAD

    def _go_on(self) -> None:
        # In the context of `run`: what arrives next does not belong to the task that made way for it.
        self._loop.call_soon(self._pipes.guarded, self._work, context=self._context)

    def _hold(self, until: Callable[[], Awaitable[object]]) -> None:
        """Take nothing more until then; some is still read, so that the end is seen if it comes."""
        self._held = True

        async def release() -> None:
            await until()
            self._held = False
            self._go_on()

        self._handling.begin(release)

    def _take(self, line: bytes) -> None:
        if type(line) is Overlong:
            self._lost(line, f"has more than {self._limit} bytes", whole=False)
            return
        size = len(line)
        if size > json_rpc.LIGHT and not (begin := line[: json_rpc.LIGHT].lstrip(_BEFORE)).startswith(b"{"):
            # No message begins like this: the rest is not looked at, however long it is.
            return self._lost(begin, "cannot be read", whole=False) if begin else self._spend(size)
        try:
            message = from_json(line) if size <= json_rpc.LIGHT else json_rpc.json_in(line, self._heaviest)
        except json_rpc.HeavyError as heavy:
            return self._lost(line, f"cannot be read: {heavy}", whole=True)
        except ValueError:
            if not line.strip():
                return self._spend(size)
            try:
                message = repaired(line)
            except ValueError:
                return self._lost(line, "cannot be read", whole=True)
        fields = json_rpc.strict_object(message)
        if fields is None:
            self._refuse(message)
        else:
            self._take_message(fields if size < LONG else noted(fields, line), size)

    def _take_message(self, message: dict[str, Any], size: int) -> None:
        number: Any = message.get("id")
        method, given = message.get("method"), message.get("params")
        params: Any = given
        has_id = type(number) is int or type(number) is str
        answers = "result" in message or "error" in message
        if method is None and has_id and (answers or self._waiting.of(number) is not None):
            self._take_answer(number, message, size)
        elif type(method) is not str or not (given is None or type(given) is dict):
            self._refuse(message)
        elif has_id:
            if self._too_much is not None:
                self._spend(size)
            self._take_request(number, method, params)
        elif "id" not in message:
            self._spend(size)
            self._in_a_row = 0
            self._receive_notification(method, params)
        else:
            self._skip()

    def _spend(self, size: int) -> None:
        """Count what answers nothing; a mounted server that sends too much of it is cut."""
        if self._too_much is not None and self._fault is None:
            try:
                self._allowance.spend(PER_PIECE + size)
            except FloodError as flood:
                self._fault = self._too_much(str(flood))
                self._ended.set()

    def _refuse(self, message: Any) -> None:
        self._skip()
        number = id_of(message)
        if number is not None:
            self._answer(number, json_rpc.NO_MESSAGE)

    def _lost(self, line: bytes, fault: str, *, whole: bool) -> None:
        found = traced(line, whole=whole)
        if found is None:
            self._skip()
            if self.note_text is not None:
                self.note_text(line)
            return
        kind, number = found
        if kind == "request":
            self._answer(
                number, json_rpc.ErrorData(code=json_rpc.PARSE_ERROR, message=f"the request {fault}")
            )
        else:
            error = {"code": json_rpc.PARSE_ERROR, "message": f"its answer {fault}"}
            self._take_answer(number, {"error": error})

    def _take_answer(self, number: json_rpc.RequestId, message: dict[str, Any], size: int = 0) -> None:
        waiting = self._waiting.get(number if type(number) is int else json_rpc.request_key(number))
        if waiting is None:
            self._stray()
            return
        self._in_a_row = 0
        waiting.settle(message)
        caller = waiting.caller
        if caller is not None and not self._holds_back and (size >= BIG or not caller.pipes.has_room):
            self._pace(caller)

    def _pace(self, caller: PacedRequest) -> None:
        """Take no more answers until the client of this one has room for them."""

        async def ready() -> None:
            self.paced = True
            try:
                await caller.ready()
            finally:
                self.paced = False

        self._hold(ready)

    def _take_request(self, number: json_rpc.RequestId, method: str, params: dict[str, Any] | None) -> None:
        key = number if type(number) is int else json_rpc.request_key(number)
        if key in self._requests and self._one_per_id:
            self._stray()
            return
        self._in_a_row = 0
        if len(self._requests) >= MAX_REQUESTS:
            fault = f"more than {MAX_REQUESTS} requests at once"
            self._answer(number, json_rpc.ErrorData(code=json_rpc.INTERNAL_ERROR, message=fault))
            return
        incoming = self._requests[key] = self._make(self, number, json_rpc.progress_token(params))
        incoming.lasts = method == _LISTEN
        if self.admit is not None:
            incoming.accepted = self.admit(method, params)
        done = asyncio.Event() if method in self._inline else None
        self._handling.start(incoming.scope, self._handle(incoming, key, method, params, done))
        if done is not None:
            self._hold(done.wait)

    async def _handle(
        self,
        incoming: Incoming,
        key: json_rpc.RequestId,
        method: str,
        params: dict[str, Any] | None,
        done: asyncio.Event | None = None,
    ) -> None:
        caller, answer = None, None
        if self._holds_back:
            calling.set(caller := PacedRequest(self._pipes))
        number, result, fault = incoming.request_id, None, None
        assert self._on_request is not None
        try:
            with incoming.scope.begun():
                try:
                    if self._holds_back and not self._pipes.has_room:
                        await self._pipes.room()
                    result = await self._on_request(incoming, method, params)
                # A handler may raise anything; the peer gets an answer whatever it is.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    fault = json_rpc.error_for_peer(raised)
                answer = surely_parts(number, result, fault)
                if self._holds_back and not self._pipes.has_room:
                    result = None
                    answer = await self._unread.with_room(number, answer)
        finally:
            incoming.close()
            # Another request may have come under the same id meanwhile.
            if key in self._requests and self._requests[key] is incoming:
                del self._requests[key]
            if not incoming.cancelled:
                # Without an answer this task is cancelled from outside, because serving ends.
                answer = answer or surely_parts(number, None, json_rpc.CLOSED)
                self._pipes.write_line(*answer, more=len(self._requests) > FEW)
            if caller is not None:
                caller.end()
            if done is not None:
                done.set()

    def _answer(self, number: json_rpc.RequestId, fault: json_rpc.ErrorData) -> None:
        self._pipes.write_line(*surely_parts(number, None, fault), more=len(self._requests) > FEW)
