"""Requests in flight of one connection: `Inbox` has those of the peer, `Outbox` those to the peer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.tasks import Deadlines, TaskScope, TaskSet, reason_in, reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import ToolsetError
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.protocol.server_machine import Envelope
from mcp_toolset.tools.hidden_text import in_log

REPORT_GRACE: Final = 1.0
"""Seconds that an answer waits for the delivery of progress reports that arrived before it."""

_LATER: Final = 1.0
"""Seconds by which a deadline is extended while answers are not read."""

_TRANSPORT: Final = dispatch.TransportContext(kind="jsonrpc", can_send_request=True)


class Channel(Protocol):
    """A connection as its dispatcher drives it: a `PipePair`, or the event stream of an HTTP client."""

    fault: Exception | None  # the error of a message that ended the connection
    sent: int  # bytes that the other side has taken

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a message, given in parts; `more` says that another message follows at once."""

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Pass received bytes to `on_bytes`, and report the end of the stream."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool: ...

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Run `work`, which handles received bytes; if it raises, the connection ends."""


ON_ITS_WAY: Final = 0.1
"""Seconds that a server is not read while a tool has a large answer, and no result for the client yet."""


class PacedRequest:
    """A request in flight of a client that may read slowly."""

    __slots__ = ("_answered", "_over", "pipes")

    def __init__(self, pipes: Channel) -> None:
        self.pipes = pipes
        self._over = False
        self._answered: asyncio.Event | None = None

    def end(self) -> None:
        self._over = True
        if self._answered is not None:
            self._answered.set()

    async def ready(self) -> None:
        """Wait until the client has room, once the result of this request is written or is overdue."""
        if not self._over:
            if self._answered is None:
                self._answered = asyncio.Event()
            with anyio.move_on_after(ON_ITS_WAY):
                await self._answered.wait()
        await self.pipes.room()


calling: Final[ContextVar[PacedRequest | None]] = ContextVar("mcp_toolset_calling", default=None)
"""The request that the current task works for; `None` without backpressure."""

closing: Final[ContextVar[Callable[[], None] | None]] = ContextVar("mcp_toolset_closing", default=None)
"""Ends the response to the current call early, if its client can resume the stream."""


_Any = TypeVar("_Any")
_Waiting = TypeVar("_Waiting", bound="Waiting")


class Waiting:
    """A request that was sent, and the task that waits for its answer.

    Attributes:
        answer: The answer; `None` if the connection was closed.
        caller: The request of a client for which it was sent.
    """

    __slots__ = ("_reported", "answer", "caller", "on_progress", "reports")

    def __init__(self, on_progress: dispatch.ProgressFnT | None, caller: PacedRequest | None = None) -> None:
        self.answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.on_progress = on_progress
        self.caller = caller
        self.reports = 0
        self._reported: anyio.Event | None = None

    def begin_report(self) -> None:
        self.reports += 1

    def end_report(self) -> None:
        self.reports -= 1
        if not self.reports and self._reported is not None:
            self._reported.set()

    async def reported(self) -> None:
        """Wait until the reports that arrived before the answer are delivered, for a limited time."""
        self._reported = anyio.Event()
        with anyio.move_on_after(REPORT_GRACE):
            await self._reported.wait()

    def expire(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(TimeoutError())

    def settle(self, message: dict[str, Any] | None) -> None:
        """Set the answer, `None` if the connection was closed; a second answer is ignored."""
        if not self.answer.done():
            self.answer.set_result(message)


class ById(dict[json_rpc.RequestId, _Any]):
    """Requests in flight in one direction, by `request_key` of their ids."""

    def of(self, number: object) -> _Any | None:
        """The request with the id of a message; `None` without such a request, or for an invalid id."""
        return self.get(json_rpc.request_key(number)) if type(number) is int or type(number) is str else None


def cancel_in(requests: ById[Any], params: dispatch.Params) -> None:
    """Cancel the request that `notifications/cancelled` names, if it is in flight."""
    known = requests.of((params or {}).get("requestId"))
    if known is not None:
        known.cancel(reason_in(params))


class Sent(ById[_Waiting]):
    """The requests to one peer that it has not answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0

    def numbered(self, given: json_rpc.RequestId | None) -> tuple[json_rpc.RequestId, json_rpc.RequestId]:
        """The key in this table, and the id to send: `given`, or the next free number."""
        if given is not None:
            key = json_rpc.request_key(given)
            if key in self:
                raise ValueError(f"request id {given!r} is already in flight")
            return key, given
        self._last += 1
        while self._last in self:
            self._last += 1
        return self._last, self._last


class SentRequests:
    """The sending half of a dispatcher: the requests to the peer, with their deadlines."""

    keeps_time: Final = True  # deadlines of requests need no cancel scope
    paced: bool = False  # answers are not read for now, as clients have no room

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: Sent[Any] = Sent()
        self._opened = self._closed = False
        self._deadlines = Deadlines[Any](self._expire)

    def _expire(self, waiting: Waiting) -> None:
        """Fail a request whose deadline is over; while answers are not read, extend it instead."""
        if self.paced:
            self._deadlines.begin(waiting, _LATER)
        else:
            waiting.expire()


class OneWayContext:
    """The dispatch context of a request during which the client cannot be sent requests.

    It is a handler's way back to the client. Each transport has a subclass that sends notifications.

    Attributes:
        accepted: The decision about the request from its arrival; `None` if it was not made then.
        cancelled: True if the client has cancelled the request by a message.
    """

    __slots__ = ("_cancel_requested", "_token")

    accepted: Envelope | json_rpc.MCPError | None = None
    can_send_request: bool = False
    cancelled: bool = False
    http: Any = None
    message_metadata: Any = None
    reason: str | None = None
    request_id: Any = None
    _cancel_requested: anyio.Event | None
    _token: json_rpc.ProgressToken | None

    @property
    def cancel_requested(self) -> anyio.Event:
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
            if self.cancelled:
                self._cancel_requested.set()
        return self._cancel_requested

    def refuse_requests(self) -> None:
        """Forbid requests to the client, whose revision of the protocol has none."""

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        raise json_rpc.NoBackChannelError(method)

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        raise NotImplementedError

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is None:
            return
        params = json_rpc.progress_params(self._token, progress, total, message)
        await self.notify("notifications/progress", params)


class Incoming(OneWayContext):
    """A message of the peer; the peer can be sent requests until the message is answered.

    Attributes:
        lasts: True for a request that does not end by itself.
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
        dispatcher: dispatch.Outbound,
        request_id: json_rpc.RequestId | None = None,
        token: json_rpc.ProgressToken | None = None,
    ) -> None:
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
        self.can_send_request = False

    def close(self) -> None:
        self.can_send_request = self._open = False

    def cancel(self, reason: str | None = None) -> None:
        self.cancelled, self.reason = True, reason
        if self._cancel_requested is not None:
            self._cancel_requested.set()
        self.scope.cancel()

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise json_rpc.NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        if self._open:
            await self._dispatcher.notify(method, params, opts)


MAX_REQUESTS: Final = 4096
"""The number of requests of the peer that may be in flight at once; more are refused."""

MAX_NOTIFICATIONS: Final = 1024
"""The number of notifications of the peer that are handled at once; above it, the oldest is cancelled."""

MAX_GARBAGE: Final = 1000
"""Lines in a row that are no messages, or answer no request, after which the connection is closed."""

_CHANGES: Final = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")
)
"""Notifications of which a second one adds nothing while the first one is not handled yet."""

_log = logging.getLogger("mcp_toolset.wire")


class Inbox:
    """The requests and notifications of one peer; `SentRequests` has those to the peer."""

    _waiting: Sent[Any]

    def __init__(self, too_much: Callable[[str], ToolsetError] | None = None) -> None:
        """Create an inbox; `too_much` makes the error that ends the connection of a flooding peer."""
        self._requests: ById[Incoming] = ById()
        self._notes: dict[TaskScope, None] = {}
        self._unheard: set[str] = set()  # changes of lists that are not handled yet
        self._ended = asyncio.Event()
        self._fault: Exception | None = None
        self._too_much = too_much
        self._in_a_row = 0
        self.skipped = 0
        """Lines that were no messages."""
        self.strays = 0
        """Answers without a request in flight, and requests whose id is in use."""
        self._handling = TaskSet(self._ended.set)
        self._make: Callable[..., Incoming] = Incoming
        self._on_request: dispatch.OnRequest | None = None
        self._on_notify: dispatch.OnNotify | None = None
        self._intercept: dispatch.OnNotifyIntercept | None = None

    def _skip(self) -> None:
        self.skipped += 1
        self._count()

    def _stray(self) -> None:
        self.strays += 1
        self._count()

    def _count(self) -> None:
        self._in_a_row += 1
        if self._too_much is not None and self._in_a_row > MAX_GARBAGE and self._fault is None:
            why = f"more than {MAX_GARBAGE} lines in a row on its stdout were no messages"
            self._fault = self._too_much(why)
            self._ended.set()

    def _receive_notification(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/cancelled":
            cancel_in(self._requests, params)
        elif method == "notifications/progress" and self._take_progress(params or {}):
            return
        if dispatch.run_notify_intercept(self._intercept, method, params):
            return
        if method in _CHANGES:
            if method in self._unheard:
                return
            self._unheard.add(method)
        self._start_note(None, self._handle_change, self._make(self), method, params)

    async def _handle_change(self, context: Incoming, method: str, params: dict[str, Any] | None) -> None:
        self._unheard.discard(method)
        assert self._on_notify is not None
        await self._on_notify(context, method, params)

    def _take_progress(self, params: dict[str, Any]) -> bool:
        waiting, progress = self._waiting.of(params.get("progressToken")), params.get("progress")
        if type(progress) not in (int, float):
            return False
        if waiting is None or waiting.on_progress is None:
            return False
        total, message = params.get("total"), params.get("message")
        self._start_note(
            waiting,
            waiting.on_progress,
            float(cast("float", progress)),
            float(cast("float", total)) if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )
        return True

    def _start_note(self, about: Waiting | None, handler: Callable[..., Awaitable[None]], *what: Any) -> None:
        if about is not None:
            about.begin_report()
        scope = TaskScope()
        self._notes[scope] = None
        if len(self._notes) > MAX_NOTIFICATIONS:
            oldest = next(iter(self._notes))
            del self._notes[oldest]
            oldest.cancel()
        self._handling.start(scope, self._noted(scope, about, handler, what))

    async def _noted(
        self,
        scope: TaskScope,
        about: Waiting | None,
        handler: Callable[..., Awaitable[None]],
        what: tuple[Any, ...],
    ) -> None:
        with scope.begun():
            try:
                await handler(*what)
            # The session and its user register handlers; an error of a handler must not end the connection.
            except Exception:
                _log.exception("a notification handler raised")
            finally:
                self._notes.pop(scope, None)
                if about is not None:
                    about.end_report()


FEW: Final = 1
"""The number of requests in flight from which on messages are sent together."""


class Outbox(SentRequests):
    """Sends requests and notifications over a channel while it is open."""

    def __init__(self, pipes: Channel) -> None:
        super().__init__()
        self._pipes = pipes

    def _close(self) -> None:
        self._closed = True
        self._deadlines.stop()
        for waiting in self._waiting.values():
            waiting.settle(None)

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed:
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED)
        if not self._opened:
            raise RuntimeError("send_raw_request was called before run()")
        opts = opts or {}
        if watched() and not opts.get("is_watched"):
            with SentRequest(method, params) as sent:
                known: dispatch.CallOptions = {**opts, "is_watched": True}
                return sent.answered(await self.send_raw_request(method, sent.params, known))
        on_progress, timeout = opts.get("on_progress"), opts.get("timeout")
        if not self._pipes.has_room:
            timeout = await self._room_within(timeout, method)
        key, number = self._waiting.numbered(opts.get("request_id"))
        line = json_rpc.request_line(number, method, params, with_progress=on_progress is not None)
        # The peer works while `Waiting` is made: no answer is read before this task waits.
        self._pipes.write_line(line, more=len(self._waiting) >= FEW)
        waiting = self._waiting[key] = Waiting(on_progress, calling.get())
        if timeout is not None:
            self._deadlines.begin(waiting, timeout)
        try:
            answer = await waiting.answer
            if waiting.reports:
                await waiting.reported()
            return json_rpc.result_of(answer)
        except TimeoutError:
            self._abandon(number, f"timed out after {timeout:g} s", opts)
            raise json_rpc.RequestTimedOut(
                json_rpc.REQUEST_TIMEOUT, f"Request {method!r} timed out"
            ) from None
        except anyio.get_cancelled_exc_class():
            # An answered request has nothing left to cancel.
            if waiting.answer.cancelled():
                self._abandon(number, reason_or("caller cancelled"), opts)
            raise
        finally:
            del self._waiting[key]
            self._deadlines.end(waiting)

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        """Send a notification, unless the connection is closed."""
        if not self._pipes.has_room:
            await self._pipes.room()
        self._send_notification(method, params)

    async def _room_within(self, seconds: float | None, method: str) -> float | None:
        """Wait until a request may be sent; returns the rest of its timeout."""
        began = anyio.current_time()
        with anyio.move_on_after(seconds) as scope:
            await self._pipes.room()
        if scope.cancelled_caught:
            raise json_rpc.RequestTimedOut(
                json_rpc.REQUEST_TIMEOUT, f"Request {method!r} could not be sent in time"
            )
        if self._closed:
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED)
        return None if seconds is None else max(0.0, seconds - (anyio.current_time() - began))

    def _abandon(self, number: json_rpc.RequestId, reason: str, opts: dispatch.CallOptions) -> None:
        if opts.get("cancel_on_abandon", True):
            self._send_notification("notifications/cancelled", {"requestId": number, "reason": reason})

    def _send_notification(self, method: str, params: dispatch.Params) -> None:
        if self._closed:
            return
        try:
            self._pipes.write_line(json_rpc.notification(method, params))
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))
