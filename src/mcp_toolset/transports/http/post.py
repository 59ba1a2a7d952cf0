"""`PostedRequest`: a request by POST and its answer; `KeptEvents`: events for clients that come back.

The response is one JSON answer, unless a message has to be sent before it: progress, a question to the
client, or a ping after some seconds of silence. Then the response is an event stream (basic/transports).
`CallEvents` keeps the events of a call for a while; `Following` sends them to a client that reconnects.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import anyio
from starlette.requests import Request
from starlette.types import Receive, Send

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import CancelledError, TaskSet, from_outside, new_scope
from mcp_toolset.context.connection import Answers, Connection, RequestContext
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.dispatch import CallOptions, Params
from mcp_toolset.protocol.eras import answer_line
from mcp_toolset.protocol.server_machine import Kind, kind_of
from mcp_toolset.transports.http import budgets, messages
from mcp_toolset.transports.requests import OneWayContext

KEPT_TTL: Final = 120.0
"""Seconds that an event is kept."""

STANDING: Final = 0
"""The first part of the ids of events that belong to no call; with replicas, each has another one."""

SPAN: Final = 1_000_000_000
"""Stream numbers of one replica; its standing streams have the first of them."""

RETRY: Final = 1000
"""Milliseconds after which a client is asked to reconnect."""

_ID: Final = re.compile(rb"(\d{1,18})-(\d{1,18})")


@dataclass(frozen=True, slots=True)
class _KeptEvent:
    """One kept event, by its log and its number there."""

    log: CallEvents
    number: int
    size: int
    until: float


class KeptEvents:
    """The kept events of all sessions of one application, within a budget of bytes."""

    def __init__(self, limits: budgets.HttpLimits) -> None:
        self.size = 0
        self._limits = limits
        self._serials = itertools.count()
        self._kept: OrderedDict[int, _KeptEvent] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, log: CallEvents, number: int, event: bytes) -> None:
        """Keep an event of a log; the oldest events make room for it."""
        session, size, serial = log.session, len(event), next(self._serials)
        until = asyncio.get_running_loop().time() + KEPT_TTL
        self._kept[serial] = _KeptEvent(log, number, size, until)
        session.kept[serial] = None
        log.events[number] = event
        self.size += size
        session.size += size
        while session.size > self._limits.max_replay_bytes_per_session:
            self.drop(next(iter(session.kept)))
        while self.size > self._limits.max_replay_bytes:
            self.drop(next(iter(self._kept)))
        if self._timer is None:
            self._arm()

    def fits(self, size: int) -> bool:
        """True if an event of this size may be kept at all."""
        return size <= min(self._limits.max_replay_bytes_per_session, self._limits.max_replay_bytes)

    def drop(self, serial: int) -> None:
        """Forget a kept event, and its log if the log is empty and has ended."""
        kept = self._kept.pop(serial)
        log = kept.log
        del log.session.kept[serial], log.events[kept.number]
        self.size -= kept.size
        log.session.size -= kept.size
        if log.ended and not log.events:
            log.session.logs.pop(log.name, None)

    def _arm(self) -> None:
        """Set the timer to the expiry of the oldest event."""
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
        logs: The logs that are not ended or not empty, by the first part of their events' ids.
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

    def log(self, request_id: json_rpc.RequestId) -> CallEvents:
        """Begin the log of a call."""
        return self._begun(CallEvents(self, self._all, next(self._names), request_id))

    def standing(self, *, numbered: bool) -> CallEvents:
        """Begin the log of events outside of calls; `numbered` if the client can reconnect for them."""
        return self._begun(CallEvents(self, self._all, self.first, numbered=numbered))

    def _begun(self, log: CallEvents) -> CallEvents:
        self.logs[log.name] = log
        return log

    def forget(self) -> None:
        """End the session, and drop its events."""
        self.ended = True
        for serial in list(self.kept):
            self._all.drop(serial)


class CallEvents:
    """The events of one call, with its answer at the end; or the events outside of calls.

    Attributes:
        detach: Ends the response that the events went to so far; set by the call.
    """

    def __init__(
        self,
        session: SessionEvents,
        kept: KeptEvents,
        name: int,
        request_id: json_rpc.RequestId | None = None,
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
        self.news = anyio.Event()

    def priming(self, number: int = 0) -> bytes:
        """An event without a message, which gives the client an id to reconnect with."""
        if not self.numbered:
            return b""
        # There is no blank after `data:`, so that clients which look for `data: ` ignore the event.
        return b"id: %d-%d\r\nretry: %d\r\ndata:\r\n\r\n" % (self.name, number, RETRY)

    def add(self, message: bytes) -> bytes:
        """Keep a message if it fits; returns its event."""
        number, event = self._event(message)
        if self._fits(len(event)):
            self._kept.keep(self, number, event)
        self._tell()
        return event

    def end(self, answer: bytes) -> bytes:
        """Keep the answer, or an error if it is too big to be kept; returns the event of the answer."""
        number, event = self._event(answer)
        self.ended = True
        if self._fits(len(event)):
            self._kept.keep(self, number, event)
        elif not self.session.ended:
            too_big = json_rpc.ErrorData(code=json_rpc.INTERNAL_ERROR, message=_too_big(len(answer)))
            self._kept.keep(
                self, number, _event_with_id(self.name, number, answer_line(self._request_id, None, too_big))
            )
        self._tell()
        return event

    def _fits(self, size: int) -> bool:
        return not self.session.ended and self._kept.fits(size)

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """The kept events after a number, each with its own number."""
        # Few of the kept events are new, so the search begins at the newest.
        new = list(itertools.takewhile(lambda each: each > number, reversed(self.events)))
        return [(each, self.events[each]) for each in reversed(new)]

    def give_up(self) -> None:
        """End the log, even without an answer, and detach it from its response."""
        self.detach = _nothing
        if not self.ended:
            self.ended = True
            self.session.logs.pop(self.name, None)
            self._tell()

    def _event(self, message: bytes) -> tuple[int, bytes]:
        """The next number, and a message as the event with this number."""
        self.last += 1
        event = _event_with_id(self.name, self.last, message) if self.numbered else messages.event_of(message)
        return self.last, event

    def _tell(self) -> None:
        """Wake the readers that wait in `news`."""
        news, self.news = self.news, anyio.Event()
        news.set()


def place_of(event_id: bytes | None) -> tuple[int, int] | None:
    """The name of the log and the number in an event's id; `None` if it is no id of an event."""
    found = None if event_id is None else _ID.fullmatch(event_id)
    return None if found is None else (int(found[1]), int(found[2]))


def _event_with_id(name: int, number: int, message: bytes) -> bytes:
    return b"id: %d-%d\r\nevent: message\r\ndata: %b\r\n\r\n" % (name, number, message)


def _too_big(size: int) -> str:
    return (
        f"the call ran, but its answer of {size} bytes was too big to be kept until its client came back "
        "(max_replay_bytes_per_session); keep the stream of the call open"
    )


def _nothing() -> None:
    """Do nothing: there is no response to end."""


PING: Final = b": ping\r\n\r\n"
_GONE: Final = (
    b"nothing is kept of the call that this event belongs to: too much time has passed, or newer events took "
    b"its place; call again"
)


class Following:
    """The events of a log after one of them: first the kept ones, then the new ones."""

    def __init__(self, log: CallEvents, number: int) -> None:
        """Go on after the event with this number; a number that is not reached yet counts as the last one."""
        self.number = min(number, log.last)
        self._log = log
        self._open = anyio.CancelScope()
        self.close = self._open.cancel

    async def send(self, receive: Receive, send: Send, headers: messages.Headers, pause: float) -> None:
        """Answer the request, until the log ends, the client leaves or the stream is closed early."""
        await send({"type": "http.response.start", "status": 200, "headers": [*messages.STREAM, *headers]})
        # The client gets the id of its last event again, as it may have to reconnect before the next.
        if primed := self._log.priming(self.number):
            await _send_part(send, primed)
        with self._open:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_when_left, receive, group.cancel_scope)
                await self._events(send, pause)
                group.cancel_scope.cancel()
        await _send_part(send, b"", more=False)

    async def _events(self, send: Send, pause: float) -> None:
        while True:
            for number, event in self._log.after(self.number):
                await _send_part(send, event)
                self.number = number
            if self._log.ended:
                return
            with anyio.move_on_after(pause) as silence:
                await self._log.news.wait()
            if silence.cancelled_caught:
                await _send_part(send, PING)


class StandingStream:
    """The events outside of calls, and the response (at most one) that they are sent on."""

    def __init__(self, log: CallEvents) -> None:
        self._log = log
        self.say, self.end = log.add, log.give_up
        self._open: Following | None = None
        self._sent = 0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    async def send(
        self, receive: Receive, send: Send, headers: messages.Headers, pause: float, after: int | None = None
    ) -> None:
        """Answer a `GET` with the stream; a client that reconnects `after` an event ends the last one."""
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


async def gone(send: Send, headers: messages.Headers) -> None:
    """Answer that the events of a call are not kept any more."""
    await messages.reply(send, 410, _GONE, messages.PLAIN, headers)


async def _send_part(send: Send, event: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": more})


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel `scope` when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


PING_INTERVAL: Final = 15.0
"""Seconds of silence after which the answer becomes a stream with a comment, so that no proxy drops it."""

Outcome = tuple[dict[str, Any] | None, json_rpc.ErrorData | None]
"""The result and the error of a request: one of them, or none if the request was cancelled."""

_log = logging.getLogger("mcp_toolset.wire")


class PostedRequest(OneWayContext):
    """One request and its answer; also the context of its handler.

    Attributes:
        log: The kept events of its stream; `None` before the stream begins, or if its events are not kept.
    """

    log: CallEvents | None = None
    http: Request

    def __init__(
        self,
        request: Mapping[str, Any],
        http: Request,
        send: Send,
        *,
        streams: bool,
        asks: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._method: str = request["method"]
        self._params: dict[str, Any] | None = request.get("params")
        self._token = json_rpc.progress_token(self._params)
        self._send = send
        self._streams = streams
        self.http = http
        self._receive = http.receive
        self._headers = headers
        self._streaming = self._detached = self._complete = False
        self._sending: anyio.Lock | None = None
        self._beside: TaskSet | None = None
        self._cancel_requested = None
        self.scope = new_scope()
        self.finished, self.can_send_request = False, asks
        self.number: json_rpc.RequestId = request["id"]
        self.request_id = self.number

    async def perform(self, answers: Answers, connection: Connection) -> Outcome:
        """Run the handler; if it takes long, run `watch` beside it."""
        request = RequestContext(self._method, self._params, self.request_id, connection, self, self.http)
        ended = self.watched()
        try:
            with self.scope:
                try:
                    return await answers.answer(request), None
                # A handler may raise anything; the client gets an error as the answer.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    return None, json_rpc.error_for_peer(raised)
        finally:
            self.finished, self.can_send_request = True, False
            ended()
            if self._beside is not None:
                await self._beside.end()
        return None, None

    def watched(self) -> Callable[[], object]:
        """Plan a call of `begin_watch`, if the request takes long; returns a function that cancels it."""
        raise NotImplementedError

    def begin_watch(self) -> None:
        self.beside(self.watch)

    def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` beside the handler, until the handler has ended."""
        if self.finished:
            return
        if self._beside is None:
            self._beside = TaskSet(self._failed)
        self._beside.begin(work)

    def _failed(self) -> None:
        fault = None if self._beside is None else self._beside.fault
        _log.warning("the stream of a request failed; its client gets nothing more", exc_info=fault)

    async def watch(self) -> None:
        """Watch the client of a request that takes long."""
        raise NotImplementedError

    async def client_gone(self) -> None:
        """Wait until the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def ping(self) -> None:
        """Send a comment on the stream, so that no proxy drops the connection."""
        if self._streams:
            await self.event(PING)

    async def event(self, event: bytes) -> None:
        await self.say(None, event)

    async def say(self, message: bytes | None, event: bytes = b"") -> None:
        """Send a message, or else a ready event: the response becomes a stream.

        After the handler's end nothing is sent.
        """
        if self._sending is None:
            self._sending = anyio.Lock()
        async with self._sending:
            if self.finished:
                return
            primed = b"" if self._streaming else await self._begin()
            if message is not None:
                event = messages.event_of(message) if self.log is None else self.log.add(message)
            if not self._detached:
                await self._send_part(primed + event, more=True)

    async def _begin(self) -> bytes:
        """Begin a stream; returns the event that goes before the first message, if there is one."""
        headers = [*messages.STREAM, *self._headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streaming = True
        self.log = self.keep()
        return b"" if self.log is None else self.log.priming()

    def keep(self) -> CallEvents | None:
        """The log of the events of its stream, if its client may come back for them."""
        return None

    async def close_early(self) -> None:
        """End the response if its client can reconnect for the rest; the call goes on."""
        if self._sending is None:
            self._sending = anyio.Lock()
        async with self._sending:
            if self._detached and self.log is not None:
                self.log.detach()
            elif not self.finished:
                primed = b"" if self._streaming else await self._begin()
                self._detached = self.log is not None
                await self._send_part(primed, more=not self._detached)

    def close_soon(self) -> None:
        self.beside(self.close_early)

    def detach(self) -> None:
        """Send nothing more on this response: its client has reconnected with another one."""
        self._detached = True

    async def _send_part(self, event: bytes, *, more: bool) -> None:
        self._complete = not more
        await self._send({"type": "http.response.body", "body": event, "more_body": more})

    async def written(self, outcome: Outcome, statuses: Mapping[int, int]) -> tuple[bytes, int]:
        """Encode the answer, once there is room for it; returns its bytes and its status."""
        way: budgets.BoundedSend | None = self.http.scope.get(budgets.WAY)
        if way is None:
            return self.body_of(outcome, statuses)
        unsent, result = way.unsent, outcome[0]
        if result is not None and (unsent.written or unsent.size):
            # The answer of a stream that can be resumed is kept, so it must not be dropped.
            reason = await way.room(result, may_drop=self.log is None)
            if reason is not None:
                return answer_line(
                    self.number, None, json_rpc.ErrorData(json_rpc.INTERNAL_ERROR, reason)
                ), 503
        answer = self.body_of(outcome, statuses)
        if len(answer[0]) > budgets.SLICE:
            unsent.wrote(len(answer[0]))
        return answer

    def body_of(self, outcome: Outcome, statuses: Mapping[int, int]) -> tuple[bytes, int]:
        """Encode the answer; returns its bytes and its status."""
        result, fault = outcome
        if fault is None:
            try:
                return answer_line(self.number, result, None), 200
            except ValueError:
                fault = json_rpc.UNWRITTEN
        return answer_line(self.number, None, fault), statuses.get(fault.code, 200)

    async def answer(self, body: bytes, status: int) -> None:
        """Send the answer and complete the response; the caller should no longer hold the result."""
        if self._sending is None:
            return await self._answer(body, status)
        # A task that the tool has started may be sending a message at this moment.
        async with self._sending:
            await self._answer(body, status)

    async def _answer(self, body: bytes, status: int) -> None:
        if self._streaming:
            event = messages.event_of(body) if self.log is None else self.log.end(body)
            if not self._complete:
                await self._send_part(b"" if self._detached else event, more=False)
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *self._headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        if self._streams and not self.finished:
            await self.say(json_rpc.notification(method, params or {}))


def kind_of_posted(message: object) -> Kind:
    """The kind of a message of a legacy client, as other servers see it.

    Some clients write `"id": null` into every notification. An error without an id answers a message that the
    client could not read.
    """
    if not isinstance(message, dict):
        return "garbage"
    fields, kind = cast("dict[str, Any]", message), kind_of(message)  # pyright: ignore[reportUnknownArgumentType]
    if "error" in fields and "id" in fields and fields.get("jsonrpc") == "2.0" and _is_error(fields["error"]):
        return "answer"
    if kind == "answer":
        return kind if type(fields.get("result")) is dict else "garbage"
    if kind == "garbage" and "id" in fields:
        without_id = {key: value for key, value in fields.items() if key != "id"}
        return "notification" if kind_of(without_id) == "notification" else kind
    return kind


def _is_error(error: object) -> bool:
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    return type(fields.get("code")) is int and type(fields.get("message")) is str
