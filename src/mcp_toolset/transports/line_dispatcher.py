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
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, Final

import anyio
from pydantic_core import from_json

from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.concurrency.tasks import CancelledError, TaskSet, from_outside
from mcp_toolset.errors import ToolsetError
from mcp_toolset.protocol.codec import (
    LIGHT,
    MAX_ASKED,
    MAX_WEIGHT,
    HeavyError,
    json_in,
    progress_token,
    request_key,
    strict_object,
)
from mcp_toolset.protocol.dispatch import NOT_AWAITED, OnNotify, OnNotifyIntercept, OnRequest, Started
from mcp_toolset.protocol.eras import LONG, noted, surely_parts
from mcp_toolset.protocol.inbound import Envelope, id_of
from mcp_toolset.protocol.json_rpc import (
    CLOSED,
    INTERNAL_ERROR,
    NO_MESSAGE,
    PARSE_ERROR,
    ErrorData,
    MCPError,
    RequestId,
    error_for_peer,
)
from mcp_toolset.transports.backpressure import (
    BIG,
    PER_PIECE,
    Allowance,
    Channel,
    FloodError,
    PacedRequest,
    UnreadResults,
    calling,
    end_when_cut,
)
from mcp_toolset.transports.framing import MAX_MESSAGE, LineBuffer, Overlong, repaired, traced
from mcp_toolset.transports.requests import FEW, MAX_REQUESTS, Inbox, Incoming, Outbox

MAX_BACKLOG: Final = 4 * 1024 * 1024
"""Bytes that are read and kept while a peer is held back; then nothing more is read."""

MAX_AHEAD: Final = 1024
"""Requests in flight of a peer that has no room for answers; beyond that nothing more is taken."""

_SLICE: Final = 256
"""Messages that are taken before what they started gets its turn."""

_BEGUN: Final = 64
"""Requests that are begun in one turn of the event loop, of which each takes a part then."""

_BEFORE: Final = b"\xef\xbb\xbf \t\r"
"""What may stand before a message on its line."""

DRAIN: Final = 1.0
"""Seconds that requests in flight, and messages not yet looked at, may take when nothing more will come."""

_LISTEN: Final = "subscriptions/listen"

_log = logging.getLogger("mcp_toolset.wire")


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
        self._heaviest = MAX_ASKED if holds_back else MAX_WEIGHT
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
        self.admit: Callable[[str, dict[str, Any] | None], Envelope | MCPError] | None = None
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
        if size > LIGHT and not (begin := line[:LIGHT].lstrip(_BEFORE)).startswith(b"{"):
            # No message begins like this: the rest is not looked at, however long it is.
            return self._lost(begin, "cannot be read", whole=False) if begin else self._spend(size)
        try:
            message = from_json(line) if size <= LIGHT else json_in(line, self._heaviest)
        except HeavyError as heavy:
            return self._lost(line, f"cannot be read: {heavy}", whole=True)
        except ValueError:
            if not line.strip():
                return self._spend(size)
            try:
                message = repaired(line)
            except ValueError:
                return self._lost(line, "cannot be read", whole=True)
        fields = strict_object(message)
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
            self._take_note(method, params)
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
            self._answer(number, NO_MESSAGE)

    def _lost(self, line: bytes, fault: str, *, whole: bool) -> None:
        found = traced(line, whole=whole)
        if found is None:
            self._skip()
            if self.note_text is not None:
                self.note_text(line)
            return
        kind, number = found
        if kind == "request":
            self._answer(number, ErrorData(code=PARSE_ERROR, message=f"the request {fault}"))
        else:
            error = {"code": PARSE_ERROR, "message": f"its answer {fault}"}
            self._take_answer(number, {"error": error})

    def _take_answer(self, number: RequestId, message: dict[str, Any], size: int = 0) -> None:
        waiting = self._waiting.get(number if type(number) is int else request_key(number))
        if waiting is None:
            self._stray()
            return
        self._in_a_row = 0
        waiting.settle(message)
        caller = waiting.caller
        if caller is not None and not self._holds_back and (size >= BIG or not caller.has_room):
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

    def _take_request(self, number: RequestId, method: str, params: dict[str, Any] | None) -> None:
        key = number if type(number) is int else request_key(number)
        if key in self._requests and self._one_per_id:
            self._stray()
            return
        self._in_a_row = 0
        if len(self._requests) >= MAX_REQUESTS:
            fault = f"more than {MAX_REQUESTS} requests at once"
            self._answer(number, ErrorData(code=INTERNAL_ERROR, message=fault))
            return
        incoming = self._requests[key] = self._make(self, number, progress_token(params))
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
        key: RequestId,
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
                    fault = error_for_peer(raised)
                answer = surely_parts(number, result, fault)
                if self._holds_back and not self._pipes.has_room:
                    result = None
                    answer = await self._unread.first(number, answer)
        finally:
            incoming.close()
            # Another request may have come under the same id meanwhile.
            if key in self._requests and self._requests[key] is incoming:
                del self._requests[key]
            if not incoming.cancelled:
                # Without an answer this task is cancelled from outside, because serving ends.
                answer = answer or surely_parts(number, None, CLOSED)
                self._pipes.write_line(*answer, more=len(self._requests) > FEW)
            if caller is not None:
                caller.end()
            if done is not None:
                done.set()

    def _answer(self, number: RequestId, fault: ErrorData) -> None:
        self._pipes.write_line(*surely_parts(number, None, fault), more=len(self._requests) > FEW)
