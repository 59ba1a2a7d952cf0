"""`KeptEvents`: the events of legacy sessions over HTTP; `Following`: a response with the rest of them.

A call whose answer is a stream of events is resumable (2025-11-25): each event has an id, and a client whose
connection ended early gets the rest by a `GET` with `Last-Event-ID`. A `GET` without it opens the standing
stream of its session, for what is said outside of calls. An answer in plain JSON is never kept. Events are
kept in memory, for a time and up to a number of bytes; the oldest are dropped first.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import anyio
from starlette.types import Receive, Send

from mcp_toolset._records import dataclass
from mcp_toolset.protocol.eras import answer_line
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId
from mcp_toolset.transports.http.limits import HttpLimits
from mcp_toolset.transports.http.messages import PLAIN, STREAM, Headers, event_of, reply

KEPT_FOR: Final = 120.0
"""Seconds that an event is kept."""

STANDING: Final = 0
"""The first part of the ids of events that belong to no call, without replicas."""

SPAN: Final = 1_000_000_000
"""Names of streams that one replica has; the first of them is that of its standing streams."""

RETRY: Final = 1000
"""Milliseconds after which a client is asked to come back."""

_ID: Final = re.compile(rb"(\d{1,18})-(\d{1,18})")


@dataclass(frozen=True, slots=True)
class _Kept:
    log: CallEvents
    number: int
    size: int
    until: float


class KeptEvents:
    """The events of all sessions of one application, and their budget."""

    def __init__(self, limits: HttpLimits) -> None:
        self.size = 0
        self._limits = limits
        self._serials = itertools.count()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, log: CallEvents, number: int, event: bytes) -> None:
        session, size, serial = log.session, len(event), next(self._serials)
        until = asyncio.get_running_loop().time() + KEPT_FOR
        self._kept[serial] = _Kept(log, number, size, until)
        session.kept[serial] = None
        log.events[number] = event
        self.size += size
        session.size += size
        while session.size > self._limits.kept_per_session:
            self.drop(next(iter(session.kept)))
        while self.size > self._limits.kept:
            self.drop(next(iter(self._kept)))
        if self._timer is None:
            self._arm()

    def fits(self, size: int) -> bool:
        return size <= min(self._limits.kept_per_session, self._limits.kept)

    def drop(self, serial: int) -> None:
        kept = self._kept.pop(serial)
        log = kept.log
        del log.session.kept[serial], log.events[kept.number]
        self.size -= kept.size
        log.session.size -= kept.size
        if log.ended and not log.events:
            log.session.logs.pop(log.name, None)

    def _arm(self) -> None:
        first = next(iter(self._kept.values()), None)
        loop = asyncio.get_running_loop()
        self._timer = None if first is None else loop.call_at(first.until, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        old = itertools.takewhile(lambda each: each[1].until <= now, self._kept.items())
        for serial in [serial for serial, _ in old]:
            self.drop(serial)
        self._arm()


class SessionEvents:
    """The events of one session.

    Attributes:
        logs: The calls of which something can be had, by the first part of their events' ids.
        first: The first part of the ids of events that belong to no call.
    """

    def __init__(self, kept: KeptEvents, first: int = STANDING) -> None:
        self.first = first
        self.size = 0
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.logs: dict[int, CallEvents] = {}
        self.ended = False
        self._all = kept
        self._names = itertools.count(first + 1)

    def log(self, request_id: RequestId) -> CallEvents:
        return self._begun(CallEvents(self, self._all, next(self._names), request_id))

    def standing(self, *, numbered: bool) -> CallEvents:
        """Begin the log of what belongs to no call; events are `numbered` for clients that can come back."""
        return self._begun(CallEvents(self, self._all, self.first, numbered=numbered))

    def _begun(self, log: CallEvents) -> CallEvents:
        self.logs[log.name] = log
        return log

    def find(self, name: int) -> CallEvents | None:
        return self.logs.get(name)

    def forget(self) -> None:
        self.ended = True
        for serial in list(self.kept):
            self._all.drop(serial)


class CallEvents:
    """What is said in one call, its answer being the last; or outside of calls.

    Attributes:
        detach: Ends the connection that the events went to so far; set by the call.
    """

    def __init__(
        self,
        session: SessionEvents,
        kept: KeptEvents,
        name: int,
        request_id: RequestId | None = None,
        *,
        numbered: bool = True,
    ) -> None:
        self.session = session
        self.name = name
        self.numbered = numbered
        self.events: dict[int, bytes] = {}
        self.ended = False
        self.detach: Callable[[], None] = _nothing
        self._kept = kept
        self._request_id = request_id
        self.last = 0
        self._news = anyio.Event()

    def priming(self, number: int = 0) -> bytes:
        """The event without a message that gives a client an id to come back with."""
        if not self.numbered:
            return b""
        # Empty as it is, who looks for `data: ` alone does not see it.
        return b"id: %d-%d\r\nretry: %d\r\ndata:\r\n\r\n" % (self.name, number, RETRY)

    def add(self, message: bytes) -> bytes:
        number, event = self._event(message)
        if self._fits(len(event)):
            self._kept.keep(self, number, event)
        self._tell()
        return event

    def end(self, answer: bytes) -> bytes:
        """Keep the answer; returns its event. One that is too big to be kept is told of in its place."""
        number, event = self._event(answer)
        self.ended = True
        if self._fits(len(event)):
            self._kept.keep(self, number, event)
        elif not self.session.ended:
            told = ErrorData(code=INTERNAL_ERROR, message=_too_big(len(answer)))
            self._kept.keep(self, number, _wire(self.name, number, answer_line(self._request_id, None, told)))
        self._tell()
        return event

    def _fits(self, size: int) -> bool:
        return not self.session.ended and self._kept.fits(size)

    def after(self, number: int) -> list[tuple[int, bytes]]:
        # Of many events that are kept, few are new.
        new = list(itertools.takewhile(lambda each: each > number, reversed(self.events)))
        return [(each, self.events[each]) for each in reversed(new)]

    async def news(self) -> None:
        await self._news.wait()

    def give_up(self) -> None:
        """End, if need be without an answer; the connection that the events went to is let go."""
        self.detach = _nothing
        if not self.ended:
            self.ended = True
            self.session.logs.pop(self.name, None)
            self._tell()

    def _event(self, message: bytes) -> tuple[int, bytes]:
        self.last += 1
        event = _wire(self.name, self.last, message) if self.numbered else event_of(message)
        return self.last, event

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


def place_of(event_id: bytes | None) -> tuple[int, int] | None:
    """The log, and the number in it, that the id of an event names; `None` if no event has such an id."""
    found = None if event_id is None else _ID.fullmatch(event_id)
    return None if found is None else (int(found[1]), int(found[2]))


def _wire(name: int, number: int, message: bytes) -> bytes:
    return b"id: %d-%d\r\nevent: message\r\ndata: %b\r\n\r\n" % (name, number, message)


def _too_big(size: int) -> str:
    return (
        f"the call ran, but its answer of {size} bytes was too big to be kept until its client came back "
        "(kept_per_session); keep the stream of the call open"
    )


def _nothing() -> None:
    """No connection is to be ended."""


PING: Final = b": ping\r\n\r\n"
_GONE: Final = (
    b"nothing is kept of the call that this event belongs to: too much time has passed, or newer events took "
    b"its place; call again"
)


class Following:
    """What comes after one event of a log: what is kept of it, then what is said from now on."""

    def __init__(self, log: CallEvents, number: int) -> None:
        """Go on after the event with this number; one that is still to come may be of another session."""
        self.number = min(number, log.last)
        self._log = log
        self._open = anyio.CancelScope()

    async def send(self, receive: Receive, send: Send, headers: Headers, pause: float) -> None:
        """Answer the request, until the log ends, the client leaves or the stream is closed early."""
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})
        # The event that the client has, once more: it may have to come back again before there is a new one.
        if primed := self._log.priming(self.number):
            await _part(send, primed)
        with self._open:
            async with anyio.create_task_group() as group:
                group.start_soon(_left, receive, group.cancel_scope)
                await self._events(send, pause)
                group.cancel_scope.cancel()
        await _part(send, b"", more=False)

    def close(self) -> None:
        self._open.cancel()

    async def _events(self, send: Send, pause: float) -> None:
        while True:
            for number, event in self._log.after(self.number):
                await _part(send, event)
                self.number = number
            if self._log.ended:
                return
            with anyio.move_on_after(pause) as silence:
                await self._log.news()
            if silence.cancelled_caught:
                await _part(send, PING)


class StandingStream:
    """What is said outside of calls, and the one response that it goes to."""

    def __init__(self, log: CallEvents) -> None:
        self._log = log
        self._open: Following | None = None
        self._sent = 0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def say(self, message: bytes) -> None:
        self._log.add(message)

    async def send(
        self, receive: Receive, send: Send, headers: Headers, pause: float, after: int | None = None
    ) -> None:
        """Answer a `GET` with the stream; a client that comes back `after` an event ends its last one."""
        if self._open is not None:
            self._open.close()
        following = self._open = Following(self._log, self._sent if after is None else after)
        try:
            await following.send(receive, send, headers, pause)
        finally:
            self._sent = max(self._sent, following.number)
            if self._open is following:
                self._open = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def end(self) -> None:
        self._log.give_up()


async def gone(send: Send, headers: Headers) -> None:
    await reply(send, 410, _GONE, PLAIN, headers)


async def _part(send: Send, event: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": more})


async def _left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
