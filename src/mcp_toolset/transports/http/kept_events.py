"""`KeptEvents`: the events of legacy sessions over HTTP, for clients that reconnect.

A call whose answer is a stream of events is resumable (2025-11-25): each event has an id and is kept, so
that a client whose connection broke, or was closed early by the server, gets the rest by a `GET` with
`Last-Event-ID`. What is said outside of calls is kept in the same way, for the standing stream of its
session. An answer in plain JSON is never kept. Events are kept in memory, for a time and up to a number of
bytes; the oldest are dropped first.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.protocol.encoded_answers import answer_line
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId
from mcp_toolset.transports.http.limits import HttpLimits
from mcp_toolset.transports.http.replies import event_of

KEPT_FOR: Final = 120.0
"""Seconds that an event is kept."""

STANDING: Final = 0
"""The first part of the ids of events that belong to no call, without replicas."""

SPAN: Final = 1_000_000_000
"""Names of streams that one replica has; the first of them is that of its standing streams."""

RETRY: Final = 1000
"""Milliseconds after which a client is asked to come back."""

_ID: Final = re.compile(rb"(\d{1,18})-(\d{1,18})")

closing: Final[ContextVar[Callable[[], None] | None]] = ContextVar("mcp_toolset_closing", default=None)
"""Ends the response to the call at hand early, if its client can come back for the rest."""


@dataclass(frozen=True, slots=True)
class _Kept:
    log: EventLog
    number: int
    size: int
    until: float


class KeptEvents:
    """The events of all sessions of one application, and their budget.

    Attributes:
        size: Their bytes.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.size = 0
        self._limits = limits
        self._serials = itertools.count()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, log: EventLog, number: int, event: bytes) -> None:
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
        size: The bytes that are kept.
        kept: What is kept, the oldest first.
        logs: The calls of which something can be had, by the first part of their events' ids.
        ended: Whether the session has ended, so that its client cannot come back.
        first: The first part of the ids of events that belong to no call.
    """

    def __init__(self, kept: KeptEvents, first: int = STANDING) -> None:
        """Start without any.

        Args:
            kept: Has the budget.
            first: The first part of the ids of events that belong to no call; those of calls are greater.
        """
        self.first = first
        self.size = 0
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.logs: dict[int, EventLog] = {}
        self.ended = False
        self._all = kept
        self._names = itertools.count(first + 1)

    def log(self, request_id: RequestId) -> EventLog:
        return self._begun(EventLog(self, self._all, next(self._names), request_id))

    def standing(self, *, numbered: bool) -> EventLog:
        """Begin the log of what belongs to no call; events are `numbered` for clients that can come back."""
        return self._begun(EventLog(self, self._all, self.first, numbered=numbered))

    def _begun(self, log: EventLog) -> EventLog:
        self.logs[log.name] = log
        return log

    def find(self, name: int) -> EventLog | None:
        """The log of a call, if anything of it can be had."""
        return self.logs.get(name)

    def forget(self) -> None:
        """Keep nothing any more, as the session has ended."""
        self.ended = True
        for serial in list(self.kept):
            self._all.drop(serial)


class EventLog:
    """What is said in one call, its answer being the last; or outside of calls.

    Attributes:
        name: What tells it from others of its session.
        numbered: Whether its events have ids.
        last: The number of the last event.
        events: The events that are kept, by number.
        ended: Whether the answer was given, so that nothing more will come.
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
        """The events that are kept after one, with their numbers."""
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
