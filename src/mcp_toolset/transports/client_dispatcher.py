"""`ClientDispatcher`: sends requests over HTTP; streamable HTTP and the older SSE transport share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.concurrency.tasks import CancelledError, TaskScope, from_outside, new_scope, reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import UpstreamError
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.protocol.eras import noted, surely_parts
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.allowance import PER_PIECE, PER_REQUEST
from mcp_toolset.transports.carrier import Carrier, Reply
from mcp_toolset.transports.event_stream import Event, EventParser
from mcp_toolset.transports.line_dispatcher import repaired
from mcp_toolset.transports.pacing import Meter
from mcp_toolset.transports.requests import MAX_NOTIFICATIONS, Inbox, Incoming, Sent, SentRequests, Waiting

if TYPE_CHECKING:
    pass

MAX_REQUESTS: Final = 1024
"""The largest number of the server's requests in flight; further requests are refused."""

MAX_ANSWERS: Final = 16
"""Answers to such requests that are sent at once, each over its own connection; others wait."""

_log = logging.getLogger("mcp_toolset.upstream")


class Flight(Waiting):
    """A request in flight, with the scope that ends it before its answer."""

    __slots__ = ("expired", "number", "received", "scope")

    def __init__(self, number: json_rpc.RequestId, on_progress: dispatch.ProgressFnT | None) -> None:
        super().__init__(on_progress)
        self.number = number
        self.scope = new_scope()
        self.expired = False
        self.received = 0  # messages of the server on the streams of the request

    def expire(self) -> None:
        self.expired = True
        self.scope.cancel()

    def fail(self, fault: json_rpc.MCPError | UpstreamError) -> None:
        if not self.answer.done():
            self.answer.set_exception(fault)


class ClientDispatcher(SentRequests, Inbox):
    """Sends requests over HTTP, and passes on the server's requests and notifications."""

    _waiting: Sent[Flight]

    def __init__(self, carrier: Carrier) -> None:
        SentRequests.__init__(self)
        Inbox.__init__(self)
        self._carrier = carrier
        self._has_warned = False  # of an event that is no message
        self._fault: Exception | None = None
        self._context: Context = copy_context()
        self._answering = asyncio.Semaphore(MAX_ANSWERS)

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
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
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed:
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from self._fault
        if not self._opened:
            raise RuntimeError("send_raw_request was called before run()")
        if not watched():
            return await self._send_request(method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._send_request(method, sent.params, opts or {}))

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        try:
            body = json_rpc.notification(method, params)
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))
            return
        if not self._closed:
            await self._tell(body, (opts or {}).get("headers") or {})

    def _begin_reading(self) -> None: ...

    async def _exchange(
        self, flight: Flight, method: str, body: bytes, opts: dispatch.CallOptions
    ) -> dict[str, Any]:
        raise NotImplementedError

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        raise NotImplementedError

    def _is_told_of_cancels(self, method: str) -> bool:
        """True if a message tells the server that a request is cancelled."""
        return method != "initialize"

    async def _send_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions
    ) -> dict[str, Any]:
        on_progress, timeout = opts.get("on_progress"), opts.get("timeout")
        key, number = self._waiting.numbered(opts.get("request_id"))
        body = json_rpc.request_line(number, method, params, with_progress=on_progress is not None)
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
            raise json_rpc.RequestTimedOut(json_rpc.REQUEST_TIMEOUT, f"Request {method!r} timed out")
        if answer is None:
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from self._fault
        return json_rpc.result_of(answer)

    def _abandon(
        self, number: json_rpc.RequestId, method: str, reason: str, opts: dispatch.CallOptions
    ) -> None:
        if opts.get("cancel_on_abandon", True) and self._is_told_of_cancels(method) and not self._closed:
            cancelled = {"requestId": number, "reason": reason}
            self._start(lambda: self.notify("notifications/cancelled", cancelled, opts))

    def _start(self, work: Callable[[], Awaitable[None]]) -> TaskScope:
        """Run `work` in a new task, in the context of `run`."""
        scope = TaskScope()

        async def scoped() -> None:
            with scope.begun():
                await work()

        self._handling.start(scope, scoped(), self._context.copy())
        return scope

    def is_for(self, answer: dict[str, Any], flight: Flight) -> bool:
        """False if an answer on the stream of a request has the id of another request."""
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
        """The answer in an event of a stream outside of requests; other messages are handled here."""
        if event.name not in (b"", b"message") or not event.data:
            return None
        message = message_in(event.data, logs=not self._has_warned)
        if message is None and not self._has_warned:
            self._has_warned = True
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
            self._receive_notification(method, cast("dict[str, Any] | None", params))
        elif type(number) is int or type(number) is str:
            self._take_request(number, method, cast("dict[str, Any] | None", params))

    def _take_request(self, number: json_rpc.RequestId, method: str, params: dict[str, Any] | None) -> None:
        self._carrier.allowance.spend(PER_REQUEST)
        key = json_rpc.request_key(number)
        if key in self._requests or self._closed:
            return
        if len(self._requests) >= MAX_REQUESTS:
            fault = json_rpc.ErrorData(json_rpc.INTERNAL_ERROR, f"more than {MAX_REQUESTS} requests at once")
            if len(self._notes) < MAX_NOTIFICATIONS:
                self._start_note(None, self._answer, number, None, fault)
            return
        incoming = self._requests[key] = Incoming(self, number, json_rpc.progress_token(params))
        self._handling.start(incoming.scope, self._handle(incoming, key, method, params))

    async def _handle(
        self, incoming: Incoming, key: json_rpc.RequestId, method: str, params: dict[str, Any] | None
    ) -> None:
        result, fault = None, None
        assert self._on_request is not None
        try:
            with incoming.scope.begun():
                try:
                    result = await self._on_request(incoming, method, params)
                # A handler may raise anything, and the server needs an answer.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    fault = json_rpc.error_for_peer(raised)
                if not incoming.cancelled:
                    await self._answer(incoming.request_id, result, fault)
        finally:
            incoming.close()
            del self._requests[key]

    async def _answer(
        self, number: json_rpc.RequestId, result: dict[str, Any] | None, fault: json_rpc.ErrorData | None
    ) -> None:
        body = b"".join(surely_parts(number, result, fault))
        async with self._answering:
            await self._tell(body, {})


def message_in(data: bytes, *, logs: bool = True) -> dict[str, Any] | None:
    """The message in a body or an event, repaired if it must be; `None` if it cannot be read."""
    try:
        message = json_rpc.json_in(data)
    except ValueError:
        try:
            message = repaired(data)
        except ValueError as fault:
            if logs:
                _log.info("a message of %d bytes cannot be read: %s", len(data), in_log(fault))
            return None
    fields = json_rpc.strict_object(message)
    return None if fields is None else noted(fields, data)
