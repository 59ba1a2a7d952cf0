"""`ClientDispatcher`: requests in flight over HTTP; `HttpClient` and `SseClient` say how they travel.

A request is sent by the task that asks for it, so that what comes with its answer is read in its context.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, cast

import anyio

from mcp_toolset.calls.pipeline.decision import watched
from mcp_toolset.concurrency.cancel_reason import CancelledError, from_outside, reason_or
from mcp_toolset.concurrency.task_set import TaskScope, new_scope
from mcp_toolset.concurrency.turns import Turn
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
from mcp_toolset.protocol.encoded_answers import noted, surely_parts
from mcp_toolset.protocol.errors import CLOSED, error_for_peer
from mcp_toolset.protocol.json_rpc import (
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    ErrorData,
    MCPError,
    RequestId,
    RequestTimedOut,
)
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.client.carrier import Carrier, Reply
from mcp_toolset.transports.client.events import Event, EventParser
from mcp_toolset.transports.client.intake import Meter
from mcp_toolset.transports.flood import PER_PIECE, PER_REQUEST
from mcp_toolset.transports.inbox import MAX_NOTIFICATIONS, Inbox
from mcp_toolset.transports.repair import repaired
from mcp_toolset.transports.requests import Incoming, Sender, Sent, Waiting

MAX_REQUESTS: Final = 1024
"""Requests of the server that may be in flight at once; more are refused."""

MAX_ANSWERS: Final = 16
"""Answers to them that are sent at once, each over a connection of its own; the others wait."""

_log = logging.getLogger("mcp_toolset.upstream")


class Flight(Waiting):
    """A request in flight: who waits for it, and what ends it before its answer.

    Attributes:
        heard: Messages of the server that came on the request's own streams.
    """

    __slots__ = ("expired", "heard", "number", "scope")

    def __init__(self, number: RequestId, on_progress: ProgressFnT | None) -> None:
        """Begin; the task that sends the request enters `scope`."""
        super().__init__(on_progress)
        self.number = number
        self.scope = new_scope()
        self.expired = False
        self.heard = 0

    def expire(self) -> None:
        self.expired = True
        self.scope.cancel()

    def fail(self, fault: MCPError | UpstreamError) -> None:
        if not self.answer.done():
            self.answer.set_exception(fault)


class ClientDispatcher(Sender, Inbox):
    """Sends requests over HTTP and hands on what the server sends."""

    _waiting: Sent[Flight]

    def __init__(self, carrier: Carrier) -> None:
        """Send nothing before `run`, and then by `carrier`."""
        Sender.__init__(self)
        Inbox.__init__(self)
        self._carrier = carrier
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
        """Hand messages of the server on until the connection ends."""
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
        """End the connection, because of a failure or because the server has ended it."""
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
        """Send a notification; one that is lost is logged."""
        try:
            body = notification(method, params)
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))
            return
        if not self._closed:
            await self._tell(body, (opts or {}).get("headers") or {})

    def _begin_reading(self) -> None:
        """Begin to read what comes without a request, in the context of `run`."""

    async def _exchange(self, flight: Flight, method: str, body: bytes, opts: CallOptions) -> dict[str, Any]:
        """Send a request; returns its answer, a whole message."""
        raise NotImplementedError

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer; what happens to it on its way raises nothing."""
        raise NotImplementedError

    def _is_told_of_cancels(self, method: str) -> bool:
        """Whether the server is told by a message that a request is no longer waited for."""
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
        """Whether an answer on a request's own stream is to that request; if not, it is to another one."""
        return (self.flight_of(answer) or flight) is flight

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
        message = message_in(event.data)
        if message is None:
            _log.warning("%s sent an event that is no message", self._carrier.host)
        elif "method" in message:
            self._take(message, len(event.data))
        else:
            return message
        return None

    def _take(self, message: dict[str, Any], size: int) -> None:
        """Take a request or a notification of the server, which has `size` bytes."""
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


def message_in(data: bytes) -> dict[str, Any] | None:
    """The message in a body or an event, repaired if need be; `None` if there is none."""
    try:
        message = json_in(data)
    except ValueError:
        try:
            message = repaired(data)
        except ValueError as fault:
            _log.info("a message of %d bytes cannot be read: %s", len(data), in_log(fault))
            return None
    fields = strict_object(message)
    return None if fields is None else noted(fields, data)
