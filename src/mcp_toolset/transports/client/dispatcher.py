"""`ClientDispatcher`: requests in flight over HTTP; `HttpClient` and `SseClient` say how they travel.

A request is sent by the task that asks for it, so that what comes with its answer is read in its context.
`EventParser` reads streams of events. `Intake` bounds the bytes that are read of one server at once: each
answer has a connection of its own; beyond the budget one body is read at a time, once the results before it
are on their way to clients that set the pace (`PacedRequest`). Deadlines pause only while a client has no
room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, NamedTuple, cast

import anyio

from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.concurrency.tasks import CancelledError, TaskScope, from_outside, new_scope, reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import UpstreamError
from mcp_toolset.protocol.codec import (
    json_in,
    notification,
    progress_token,
    request_key,
    request_line,
    result_of,
    strict_object,
)
from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Params,
    ProgressFnT,
    Started,
)
from mcp_toolset.protocol.eras import noted, surely_parts
from mcp_toolset.protocol.json_rpc import (
    CLOSED,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    ErrorData,
    MCPError,
    RequestId,
    RequestTimedOut,
    error_for_peer,
)
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.backpressure import BIG, PER_LINE, PER_PIECE, PER_REQUEST, PacedRequest, calling
from mcp_toolset.transports.client.carrier import Carrier, Reply
from mcp_toolset.transports.framing import repaired
from mcp_toolset.transports.requests import MAX_NOTIFICATIONS, Inbox, Incoming, Sent, SentRequests, Waiting

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLongError(Exception):
    """An event has more bytes than it may have."""


class Event(NamedTuple):
    """One event."""

    name: bytes  # the field `event`; empty where the event has none, which means `message`
    data: bytes  # the lines of the field `data`


class EventParser:
    """Parses one stream of events, however it is cut into chunks.

    Attributes:
        last_id: The id as of the last event that came whole, to come back with after a loss.
        retry: Milliseconds to wait before coming back, if the server has said so.
        work: What reading has cost beside the data of events; whoever counts it sets it back.
    """

    __slots__ = (
        "_after_return",
        "_begun",
        "_data",
        "_id",
        "_limit",
        "_name",
        "_parts",
        "_size",
        "last_id",
        "retry",
        "work",
    )

    def __init__(self, limit: int, last_id: bytes = b"", retry: int | None = None) -> None:
        self.last_id = self._id = last_id
        self.retry = retry
        self._limit = limit
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = self.work = 0
        self._begun = self._after_return = False

    @property
    def is_between_events(self) -> bool:
        return not self._size

    def feed(self, chunk: bytes) -> list[Event]:
        if chunk and self._after_return:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_return = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:
            # A part of something big, kept as it is.
            self._add(chunk)
            return []
        ended = chunk.endswith((b"\n", b"\r"))
        lines = chunk.splitlines()
        rest = b"" if ended else lines.pop()
        events: list[Event] = []
        self.work += PER_LINE * len(lines)
        if self._parts:
            self._parts.append(lines[0])
            self._size -= sum(map(len, self._parts[:-1]))
            lines[0] = b"".join(self._parts)
            self._parts = []
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line:
                self._take(line)
            elif (event := self._event()) is not None:
                events.append(event)
        if rest:
            self._add(rest)
        return events

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._count(len(part))

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLongError(f"an event has more than {self._limit} bytes")

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._count(len(line))
            self._data.append(value)
        elif field == b"event":
            self._count(len(line))
            self._name = value
        elif field == b"id" and b"\0" not in value:
            self._count(len(line))
            self._id = value
        elif field == b"retry" and value.isdigit():
            # Python refuses to read thousands of digits; no one waits for more than twelve.
            self.retry = int(value.lstrip(b"0")[:12] or b"0")
        else:
            self.work += len(line)

    def _event(self) -> Event | None:
        """The event that an empty line ends, if it has data; with or without, the id counts from now on."""
        data, name, self.last_id = self._data, self._name, self._id
        self._size = 0
        if not data and not name:
            return None
        self._data, self._name = [], b""
        return Event(name, data[0] if len(data) == 1 else b"\n".join(data)) if data else None


MAX_INTAKE: Final = 8 * 1024 * 1024
"""Bytes of answers of one server that are read at once, and wait for clients; one body more is read."""

AT_ONCE: Final = 8 * 1024
"""Bytes of each body that wait for no turn: a connection has received so many anyway."""


class Intake:
    """What is being read of one server.

    Attributes:
        size: The bytes of it, and of what was read for clients that have no room yet.
    """

    def __init__(self, limit: int = MAX_INTAKE) -> None:
        self._limit = limit
        self._turn = asyncio.Lock()
        self._read: deque[tuple[PacedRequest, int]] = deque()
        self.size = self.waiting = 0
        self.paced = False

    def is_full(self, size: int) -> bool:
        return self.size + size > self._limit

    async def turn(self, size: int) -> None:
        """Wait to be the one that may read beyond the budget, until clients have room for what was read."""
        self.waiting += 1
        try:
            await self._take_turn(size)
        finally:
            self.waiting -= 1

    async def _take_turn(self, size: int) -> None:
        await self._turn.acquire()
        try:
            while self._read and self.is_full(size):
                caller, held = self._read[0]
                self.paced = True
                await caller.ready()
                self._read.popleft()
                self.size -= held
        except BaseException:
            self._turn.release()
            raise
        finally:
            self.paced = False

    def give_back(self, size: int, caller: PacedRequest | None, *, turn: bool) -> None:
        """Say that a body was read: a big one counts until its client has room."""
        if turn:
            self._turn.release()
        if caller is not None and size >= BIG:
            self._read.append((caller, size))
        else:
            self.size -= size


class Meter:
    """Counts one body, for the request that the task at hand works for; of a stream, each event is one."""

    __slots__ = ("_caller", "_intake", "_size", "_turn")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._caller = calling.get()
        self._size = 0
        self._turn = False

    async def room(self, size: int) -> None:
        if not self._turn and self._size + size > AT_ONCE and self._intake.is_full(size):
            await self._intake.turn(size)
            self._turn = True
        self._size += size
        self._intake.size += size

    def give_back(self) -> None:
        size, turn = self._size, self._turn
        if size or turn:
            self._size, self._turn = 0, False
            self._intake.give_back(size, self._caller, turn=turn)


MAX_REQUESTS: Final = 1024
"""Requests of the server that may be in flight at once; more are refused."""

MAX_ANSWERS: Final = 16
"""Answers to them that are sent at once, each over a connection of its own; the others wait."""

_log = logging.getLogger("mcp_toolset.upstream")


class Flight(Waiting):
    """A request in flight: who waits for it, and what ends it before its answer."""

    __slots__ = ("expired", "heard", "number", "scope")

    def __init__(self, number: RequestId, on_progress: ProgressFnT | None) -> None:
        super().__init__(on_progress)
        self.number = number
        self.scope = new_scope()
        self.expired = False
        self.heard = 0  # messages of the server that came on the request's own streams

    def expire(self) -> None:
        self.expired = True
        self.scope.cancel()

    def fail(self, fault: MCPError | UpstreamError) -> None:
        if not self.answer.done():
            self.answer.set_exception(fault)


class ClientDispatcher(SentRequests, Inbox):
    """Sends requests over HTTP and hands on what the server sends."""

    _waiting: Sent[Flight]

    def __init__(self, carrier: Carrier) -> None:
        SentRequests.__init__(self)
        Inbox.__init__(self)
        self._carrier = carrier
        self._told = False  # that an event of a stream is no message
        self._fault: Exception | None = None
        self._context: Context = copy_context()
        self._answering = asyncio.Semaphore(MAX_ANSWERS)

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
        try:
            self._opened = True
            self._begin_reading()
            task_status.started()
            await self._ended.wait()
        finally:
            self._closed = True
            self._deadlines.stop()
            for flight in self._waiting.values():
                flight.scope.cancel()
            await self._handling.end()
        fault = self._fault or self._handling.fault
        if fault is not None:
            raise fault

    def end_by(self, fault: Exception | None) -> None:
        self._fault = self._fault or fault
        self._closed = True
        self._ended.set()
        for flight in self._waiting.values():
            flight.scope.cancel()

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed:
            raise MCPError.from_error_data(CLOSED) from self._fault
        if not self._opened:
            raise RuntimeError("send_raw_request was called before run()")
        if not watched():
            return await self._asked(method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._asked(method, sent.params, opts or {}))

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        try:
            body = notification(method, params)
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))
            return
        if not self._closed:
            await self._tell(body, (opts or {}).get("headers") or {})

    def _begin_reading(self) -> None: ...

    async def _exchange(self, flight: Flight, method: str, body: bytes, opts: CallOptions) -> dict[str, Any]:
        raise NotImplementedError

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        raise NotImplementedError

    def _is_told_of_cancels(self, method: str) -> bool:
        """True if the server is told by a message that a request is no longer waited for."""
        return method != "initialize"

    async def _asked(self, method: str, params: Params, opts: CallOptions) -> dict[str, Any]:
        on_progress, timeout = opts.get("on_progress"), opts.get("timeout")
        key, number = self._waiting.numbered(opts.get("request_id"))
        body = request_line(number, method, params, with_progress=on_progress is not None)
        flight = self._waiting[key] = Flight(number, on_progress)
        if timeout is not None:
            self._deadlines.begin(flight, timeout)
        answer: dict[str, Any] | None = None
        try:
            with flight.scope:
                answer = await self._exchange(flight, method, body, opts)
                if flight.reports:
                    await flight.reported()
        except anyio.get_cancelled_exc_class():
            if answer is None:
                self._abandon(number, method, reason_or("caller cancelled"), opts)
            raise
        finally:
            del self._waiting[key]
            self._deadlines.end(flight)
        if answer is None and flight.answer.done() and not flight.answer.cancelled():
            answer = flight.answer.result()
        elif answer is None and flight.expired and not self._closed:
            self._abandon(number, method, f"timed out after {timeout:g} s", opts)
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out")
        if answer is None:
            raise MCPError.from_error_data(CLOSED) from self._fault
        return result_of(answer)

    def _abandon(self, number: RequestId, method: str, reason: str, opts: CallOptions) -> None:
        if opts.get("cancel_on_abandon", True) and self._is_told_of_cancels(method) and not self._closed:
            cancelled = {"requestId": number, "reason": reason}
            self._start(lambda: self.notify("notifications/cancelled", cancelled, opts))

    def _start(self, work: Callable[[], Awaitable[None]]) -> TaskScope:
        """Run `work` beside the task at hand, in the context of `run`."""
        scope = TaskScope()

        async def scoped() -> None:
            with scope.begun():
                await work()

        self._handling.start(scope, scoped(), self._context.copy())
        return scope

    def is_for(self, answer: dict[str, Any], flight: Flight) -> bool:
        """True unless an answer on a request's own stream names another request, known here or not."""
        number = answer.get("id")
        return type(number) not in (int, str) or self._waiting.of(number) is flight

    def flight_of(self, answer: dict[str, Any]) -> Flight | None:
        return self._waiting.of(answer.get("id"))

    async def _events(
        self, reply: Reply, parser: EventParser, meter: Meter | None = None
    ) -> AsyncGenerator[Event]:
        turn, allowance = Turn(), self._carrier.allowance
        async for chunk in reply.chunks():
            if meter is not None:
                await meter.room(len(chunk))
            events = parser.feed(chunk)
            allowance.spend(parser.work + PER_PIECE * len(events))
            parser.work = 0
            for event in events:
                yield event
                await turn.pause()
            await turn.pause()
            if meter is not None and parser.is_between_events:
                meter.give_back()

    def _answer_in(self, event: Event) -> dict[str, Any] | None:
        """The answer in an event of a stream that belongs to no request; what else is in it is taken."""
        if event.name not in (b"", b"message") or not event.data:
            return None
        message = message_in(event.data, tells=not self._told)
        if message is None and not self._told:
            self._told = True
            _log.warning(
                "%s sent an event that is no message; further ones are skipped in silence", self._carrier.host
            )
        if message is None:
            return None
        if "method" not in message:
            return message
        self._take(message, len(event.data))
        return None

    def _take(self, message: dict[str, Any], size: int) -> None:
        self._carrier.allowance.spend(size)
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if type(method) is not str or not (params is None or type(params) is dict):
            return
        if "id" not in message:
            self._take_note(method, cast("dict[str, Any] | None", params))
        elif type(number) is int or type(number) is str:
            self._take_request(number, method, cast("dict[str, Any] | None", params))

    def _take_request(self, number: RequestId, method: str, params: dict[str, Any] | None) -> None:
        self._carrier.allowance.spend(PER_REQUEST)
        key = request_key(number)
        if key in self._requests or self._closed:
            return
        if len(self._requests) >= MAX_REQUESTS:
            fault = ErrorData(INTERNAL_ERROR, f"more than {MAX_REQUESTS} requests at once")
            if len(self._notes) < MAX_NOTIFICATIONS:
                self._start_note(None, self._answer, number, None, fault)
            return
        incoming = self._requests[key] = Incoming(self, number, progress_token(params))
        self._handling.start(incoming.scope, self._handle(incoming, key, method, params))

    async def _handle(
        self, incoming: Incoming, key: RequestId, method: str, params: dict[str, Any] | None
    ) -> None:
        result, fault = None, None
        assert self._on_request is not None
        try:
            with incoming.scope.begun():
                try:
                    result = await self._on_request(incoming, method, params)
                # A handler may raise anything; the server gets an answer whatever it is.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    fault = error_for_peer(raised)
                if not incoming.cancelled:
                    await self._answer(incoming.request_id, result, fault)
        finally:
            incoming.close()
            del self._requests[key]

    async def _answer(
        self, number: RequestId, result: dict[str, Any] | None, fault: ErrorData | None
    ) -> None:
        body = b"".join(surely_parts(number, result, fault))
        async with self._answering:
            await self._tell(body, {})


def message_in(data: bytes, *, tells: bool = True) -> dict[str, Any] | None:
    """The message in a body or an event, repaired if need be; `None` if there is none."""
    try:
        message = json_in(data)
    except ValueError:
        try:
            message = repaired(data)
        except ValueError as fault:
            if tells:
                _log.info("a message of %d bytes cannot be read: %s", len(data), in_log(fault))
            return None
    fields = strict_object(message)
    return None if fields is None else noted(fields, data)
