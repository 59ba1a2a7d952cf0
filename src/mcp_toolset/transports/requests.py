"""`Incoming`: a request to be answered; `Waiting`: a request that was sent; and a table of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import anyio

from mcp_toolset.concurrency.cancel_reason import reason_in
from mcp_toolset.concurrency.deadlines import Deadlines
from mcp_toolset.concurrency.task_set import TaskScope
from mcp_toolset.protocol.codec import progress_params, request_key
from mcp_toolset.protocol.dispatch import CallOptions, Outbound, ProgressFnT, TransportContext
from mcp_toolset.protocol.inbound import Envelope
from mcp_toolset.protocol.json_rpc import MCPError, NoBackChannelError, ProgressToken, RequestId
from mcp_toolset.transports.backpressure import Caller

REPORT_GRACE: Final = 1.0
"""Seconds that an answer waits for the reports that came before it: a slow client may take none."""

_LATER: Final = 1.0
"""Seconds after which it is looked again whether a request is too late."""

_TRANSPORT: Final = TransportContext(kind="jsonrpc", can_send_request=True)


class Cancellable(Protocol):
    """A request that is being answered, and may be cancelled."""

    def cancel(self, reason: str | None) -> None:
        """Cancel its handler, because the peer has said so, and perhaps why."""
        ...


_Any = TypeVar("_Any")
_Request = TypeVar("_Request", bound=Cancellable)
_Waiting = TypeVar("_Waiting", bound="Waiting")


class Waiting:
    """A request that was sent, and the task that waits for its answer.

    Attributes:
        answer: The answer; `None` says that none will come.
        on_progress: Takes reports.
        caller: The request of a client for which it was sent.
        reports: How many reports are on their way to the waiting task.
    """

    __slots__ = ("_reported", "answer", "caller", "on_progress", "reports")

    def __init__(self, on_progress: ProgressFnT | None, caller: Caller | None = None) -> None:
        self.answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.on_progress = on_progress
        self.caller = caller
        self.reports = 0
        self._reported: anyio.Event | None = None

    def begin_report(self) -> None:
        """Count a report on this request that is on its way to the waiting task."""
        self.reports += 1

    def end_report(self) -> None:
        self.reports -= 1
        if not self.reports and self._reported is not None:
            self._reported.set()

    async def reported(self) -> None:
        """Let the reports that came before the answer go before it, as far as they go at all."""
        self._reported = anyio.Event()
        with anyio.move_on_after(REPORT_GRACE):
            await self._reported.wait()

    def expire(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(TimeoutError())

    def settle(self, message: dict[str, Any] | None) -> None:
        """Give the answer; `None` says that none will come. Only the first one counts."""
        if not self.answer.done():
            self.answer.set_result(message)


class _ById(dict[RequestId, _Any]):
    """Requests in flight in one direction, by `request_key` of their ids."""

    def of(self, number: object) -> _Any | None:
        """The request with an id as a message names it; `None` if there is none, or if that is no id."""
        return self.get(request_key(number)) if type(number) is int or type(number) is str else None


class InFlight(_ById[_Request]):
    """The requests of one peer that are being answered."""

    def cancel(self, params: Mapping[str, Any] | None) -> None:
        """Cancel the request that a `notifications/cancelled` is about, if it is one of them."""
        known = self.of((params or {}).get("requestId"))
        if known is not None:
            known.cancel(reason_in(params))


class Sent(_ById[_Waiting]):
    """The requests that one peer was sent and has not answered."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0

    def numbered(self, given: RequestId | None) -> tuple[RequestId, RequestId]:
        """The key to wait under, and the id to send: `given`, or the next number that is free."""
        if given is not None:
            key = request_key(given)
            if key in self:
                raise ValueError(f"request id {given!r} is already in flight")
            return key, given
        self._last += 1
        while self._last in self:
            self._last += 1
        return self._last, self._last


class Sender:
    """The sending half of a dispatcher: the requests that the peer was sent, and the time that they have.

    Attributes:
        keeps_time: A deadline given with a request costs no cancel scope here.
        paced: Answers are not read for now, because clients have no room for those before.
    """

    keeps_time: Final = True
    paced: bool = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: Sent[Any] = Sent()
        self._opened = self._closed = False
        self._deadlines = Deadlines[Any](self._expire)

    def _expire(self, waiting: Waiting) -> None:
        """Say that the time for an answer is over, unless answers are not read for a client's sake."""
        if self.paced:
            self._deadlines.begin(waiting, _LATER)
        else:
            waiting.expire()


class OneWayContext:
    """Dispatch context of a request during which the client cannot be sent requests.

    What a handler knows of its request, and its way back to the client. Each transport derives its own from
    it and says how a notification is sent.

    Attributes:
        accepted: What was decided about the request when it arrived; `None` where nothing has been so far.
        can_send_request: Whether the client can be sent requests; a transport that can do it says so.
        cancelled: Whether the client has cancelled the request by a message.
        http: The HTTP request that it came in.
        message_metadata: What the transport knows besides.
        reason: Why the client has cancelled the request, if it has said so.
    """

    __slots__ = ("_cancel_requested", "_token")

    accepted: Envelope | MCPError | None = None
    can_send_request: bool = False
    cancelled: bool = False
    http: Any = None
    message_metadata: Any = None
    reason: str | None = None
    request_id: Any = None
    _cancel_requested: anyio.Event | None
    _token: ProgressToken | None

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set when the client has cancelled the request by a message."""
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
            if self.cancelled:
                self._cancel_requested.set()
        return self._cancel_requested

    def refuse_requests(self) -> None:
        """Send the client no requests, as it speaks a revision that has none."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        raise NotImplementedError

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is None:
            return
        params = progress_params(self._token, progress, total, message)
        await self.notify("notifications/progress", params)


class Incoming(OneWayContext):
    """A message of the peer, who can be sent requests until it is answered.

    Attributes:
        lasts: Whether it is a request that has no end by itself.
    """

    __slots__ = (
        "_dispatcher",
        "_open",
        "accepted",
        "can_send_request",
        "cancelled",
        "lasts",
        "reason",
        "request_id",
        "scope",
    )

    transport = _TRANSPORT

    def __init__(
        self,
        dispatcher: Outbound,
        request_id: RequestId | None = None,
        token: ProgressToken | None = None,
    ) -> None:
        """Belong to `dispatcher`; a notification has neither id nor token."""
        self._dispatcher = dispatcher
        self._token = token
        self._cancel_requested = None
        self.request_id = request_id
        self.scope = TaskScope()
        self.accepted = None
        self.can_send_request = self._open = True
        self.cancelled = self.lasts = False
        self.reason: str | None = None

    def refuse_requests(self) -> None:
        """Send the peer no requests, as it speaks a revision that has none."""
        self.can_send_request = False

    def close(self) -> None:
        """Send the peer nothing more: its request is answered."""
        self.can_send_request = self._open = False

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the handler, because the peer has said so, and perhaps why."""
        self.cancelled, self.reason = True, reason
        if self._cancel_requested is not None:
            self._cancel_requested.set()
        self.scope.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the peer, while its own request is being handled."""
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if self._open:
            await self._dispatcher.notify(method, params, opts)
