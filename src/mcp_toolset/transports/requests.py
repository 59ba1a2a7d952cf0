"""Requests of one connection: in flight both ways (`Inbox`, `Outbox`), and served (`serve_connection`).

`ServerMachine` decides about each message in the order in which they come; `LineDispatcher` asks it where the
bytes of a message arrive (`admit`), any other dispatcher when the message is handled. What is accepted
becomes a `RequestContext`, which `Answers` answers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.tasks import Deadlines, TaskScope, TaskSet, reason_in, reason_or
from mcp_toolset.context.connection import Answers, Connection, MessageSender, RequestContext, came_on
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import ToolsetError
from mcp_toolset.protocol.dispatch import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Outbound,
    Params,
    ProgressFnT,
    TransportContext,
    run_notify_intercept,
)
from mcp_toolset.protocol.eras import surely_parts
from mcp_toolset.protocol.json_rpc import (
    CLOSED,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    ErrorData,
    MCPError,
    NoBackChannelError,
    ProgressToken,
    RequestId,
    RequestTimedOut,
    notification,
    progress_params,
    request_key,
    request_line,
    result_of,
)
from mcp_toolset.protocol.server_machine import Envelope, ServerMachine
from mcp_toolset.tools.hidden_text import in_log

BURST: Final = 64 * 1024 * 1024
"""Bytes that may come at once, and are refilled."""

PER_SECOND: Final = 4 * 1024 * 1024
"""Bytes that are refilled in a second."""

PER_LINE: Final = 64
PER_PIECE: Final = 256
PER_CHUNK: Final = 1024
PER_REQUEST: Final = 4 * 1024
PER_INTERIM: Final = 64 * 1024
"""Bytes that these count at least: a line; a message or a piece of a body; a small chunk, parsed in 10 µs;
a request of the server, which a POST answers; an interim response (1xx)."""


class FloodError(Exception):
    """A server sends more that answers nothing than it may."""


class Allowance:
    """The budget that is left for one connection to a mounted server."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since = monotonic()

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            now = monotonic()
            self._left, self._since = min(BURST, self._left + (now - self._since) * PER_SECOND), now
            if self._left < 0:
                raise FloodError(
                    f"it floods the connection: over {BURST // 2**20} MiB of notifications, comments or tiny "
                    f"pieces at once, and over {PER_SECOND // 2**20} MiB a second; have it send less"
                )


BIG: Final = 256 * 1024
"""Bytes of an answer after which nothing more is read of its server until the result is on its way."""

ON_ITS_WAY: Final = 0.1
"""Seconds that a request may take for that: a tool may make many calls for one result."""

MAX_UNREAD: Final = 64 * 1024 * 1024
"""Bytes of results that may wait for a client that reads nothing, beside what its pipe holds."""

TIMEOUT: Final = 10.0
"""Seconds in which a client must read something while more than that waits for it."""

_LOOK: Final = 0.05
"""Seconds between looks at whether the peer can still read."""


class Channel(Protocol):
    """A connection as its dispatcher drives it: a `PipePair`, or the event stream of an HTTP client."""

    fault: Exception | None  # what taking a message failed by, which has ended the connection
    sent: int  # bytes that the other side has taken

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a message, in parts perhaps; others may be about to follow."""

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Hand on what comes, and say the end."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool: ...

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Do a part of the reader's work; if it raises, the connection ends."""


async def end_when_cut(pipes: Channel, scope: anyio.CancelScope) -> None:
    # No event tells it on all systems.
    while not pipes.is_cut():  # noqa: ASYNC110
        await anyio.sleep(_LOOK)
    scope.cancel()


class PacedRequest:
    """One request of a client whose reading sets the pace."""

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
        """Wait until the client takes more, once the result of this request counts."""
        if not self._over:
            if self._answered is None:
                self._answered = asyncio.Event()
            with anyio.move_on_after(ON_ITS_WAY):
                await self._answered.wait()
        await self.pipes.room()


calling: Final[ContextVar[PacedRequest | None]] = ContextVar("mcp_toolset_calling", default=None)
"""The request that the task at hand works for; `None` where no client sets the pace."""

closing: Final[ContextVar[Callable[[], None] | None]] = ContextVar("mcp_toolset_closing", default=None)
"""Ends the response to the call at hand early, if its client can come back for the rest."""


class UnreadResults:
    """The results that wait for one client."""

    def __init__(self, pipes: Channel) -> None:
        self._pipes = pipes
        self.size = 0

    async def room(self, size: int) -> bool:
        """Wait until a result of `size` bytes may be sent; `False` says that it is given up."""
        self.size += size
        try:
            while not self._pipes.has_room:
                sent = self._pipes.sent
                with anyio.move_on_after(TIMEOUT) as waiting:
                    await self._pipes.room()
                if waiting.cancelled_caught and self._pipes.sent == sent and self.size > MAX_UNREAD:
                    return False
            return True
        finally:
            self.size -= size

    async def first(self, number: RequestId | None, answer: list[bytes]) -> list[bytes]:
        """An answer once there is room for it, where the peer sets the pace; an error if it is given up."""
        size = sum(map(len, answer))
        return answer if await self.room(size) else surely_parts(number, None, given_up(size))


def given_up(size: int) -> ErrorData:
    return ErrorData(
        code=INTERNAL_ERROR,
        message=f"the call ran, but its result of {size} bytes was dropped: more than {MAX_UNREAD} bytes "
        f"wait for this client, which has read nothing for {TIMEOUT:g} s; read the answers, or call fewer "
        "tools at once",
    )


REPORT_GRACE: Final = 1.0
"""Seconds that an answer waits for the reports that came before it: a slow client may take none."""

_LATER: Final = 1.0
"""Seconds after which it is looked again whether a request is too late."""

_TRANSPORT: Final = TransportContext(kind="jsonrpc", can_send_request=True)


_Any = TypeVar("_Any")
_Waiting = TypeVar("_Waiting", bound="Waiting")


class Waiting:
    """A request that was sent, and the task that waits for its answer.

    Attributes:
        answer: The answer; `None` says that none will come.
        caller: The request of a client for which it was sent.
    """

    __slots__ = ("_reported", "answer", "caller", "on_progress", "reports")

    def __init__(self, on_progress: ProgressFnT | None, caller: PacedRequest | None = None) -> None:
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


class ById(dict[RequestId, _Any]):
    """Requests in flight in one direction, by `request_key` of their ids."""

    def of(self, number: object) -> _Any | None:
        """The request with an id as a message names it; `None` if there is none, or if that is no id."""
        return self.get(request_key(number)) if type(number) is int or type(number) is str else None


def cancel_in(requests: ById[Any], params: Params) -> None:
    """Cancel the request that `notifications/cancelled` names, if it is being answered."""
    known = requests.of((params or {}).get("requestId"))
    if known is not None:
        known.cancel(reason_in(params))


class Sent(ById[_Waiting]):
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


class SentRequests:
    """The sending half of a dispatcher: the requests that the peer was sent, and the time that they have."""

    keeps_time: Final = True  # A deadline given with a request costs no cancel scope here
    paced: bool = False  # answers are not read for now, because clients have no room for those before

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
        cancelled: Whether the client has cancelled the request by a message.
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
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
            if self.cancelled:
                self._cancel_requested.set()
        return self._cancel_requested

    def refuse_requests(self) -> None:
        """Send the client no requests, as it speaks a revision that has none."""

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
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
        self, dispatcher: Outbound, request_id: RequestId | None = None, token: ProgressToken | None = None
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
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        if self._open:
            await self._dispatcher.notify(method, params, opts)


MAX_REQUESTS: Final = 4096
"""Requests of the peer that may be in flight at once; more are refused."""

MAX_NOTIFICATIONS: Final = 1024
"""Notifications of the peer that may be handled at once; the oldest gives way."""

MAX_GARBAGE: Final = 1000
"""Lines in a row that may be no messages, or answer nothing, before a connection is given up."""

_CHANGES: Final = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")
)
"""Notifications of which one that is about to be heard says all that a second one would."""

_log = logging.getLogger("mcp_toolset.wire")


class Inbox:
    """The requests and notifications of one peer; `SentRequests` has those that the peer was sent."""

    _waiting: Sent[Any]

    def __init__(self, too_much: Callable[[str], ToolsetError] | None = None) -> None:
        """Take nothing before the handlers are known; `too_much` makes the error for a peer that floods."""
        self._requests: ById[Incoming] = ById()
        self._notes: dict[TaskScope, None] = {}
        self._to_hear: set[str] = set()  # the changes of lists that are about to be heard
        self._ended = asyncio.Event()
        self._fault: Exception | None = None
        self._too_much = too_much
        self._in_a_row = 0
        self.skipped = 0
        """Lines that were no messages."""
        self.strays = 0
        """Answers to no request in flight, and requests whose id is in use."""
        self._handling = TaskSet(self._ended.set)
        self._make: Callable[..., Incoming] = Incoming
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

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

    def _take_note(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/cancelled":
            cancel_in(self._requests, params)
        elif method == "notifications/progress" and self._take_progress(params or {}):
            return
        if run_notify_intercept(self._intercept, method, params):
            return
        if method in _CHANGES:
            if method in self._to_hear:
                return
            self._to_hear.add(method)
        self._start_note(None, self._hear, self._make(self), method, params)

    async def _hear(self, context: Incoming, method: str, params: dict[str, Any] | None) -> None:
        self._to_hear.discard(method)
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
            # Handlers are whatever the session and its user registered; one that fails must not end
            # the connection for all.
            except Exception:
                _log.exception("a notification handler raised")
            finally:
                self._notes.pop(scope, None)
                if about is not None:
                    about.end_report()


FEW: Final = 1
"""Exchanges in flight up to which each message is sent by itself, and not with others."""


class Outbox(SentRequests):
    """Sends requests and notifications over a `PipePair`, as long as it is open."""

    def __init__(self, pipes: Channel) -> None:
        super().__init__()
        self._pipes = pipes

    def _close(self) -> None:
        self._closed = True
        self._deadlines.stop()
        for waiting in self._waiting.values():
            waiting.settle(None)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed:
            raise MCPError.from_error_data(CLOSED)
        if not self._opened:
            raise RuntimeError("send_raw_request was called before run()")
        opts = opts or {}
        if watched() and not opts.get("is_watched"):
            with SentRequest(method, params) as sent:
                known: CallOptions = {**opts, "is_watched": True}
                return sent.answered(await self.send_raw_request(method, sent.params, known))
        on_progress, timeout = opts.get("on_progress"), opts.get("timeout")
        if not self._pipes.has_room:
            timeout = await self._room_within(timeout, method)
        key, number = self._waiting.numbered(opts.get("request_id"))
        line = request_line(number, method, params, with_progress=on_progress is not None)
        # The peer works while what waits for it is made: no answer is taken before this task waits.
        self._pipes.write_line(line, more=len(self._waiting) >= FEW)
        waiting = self._waiting[key] = Waiting(on_progress, calling.get())
        if timeout is not None:
            self._deadlines.begin(waiting, timeout)
        try:
            answer = await waiting.answer
            if waiting.reports:
                await waiting.reported()
            return result_of(answer)
        except TimeoutError:
            self._abandon(number, f"timed out after {timeout:g} s", opts)
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except anyio.get_cancelled_exc_class():
            # One that was answered has nothing left to cancel.
            if waiting.answer.cancelled():
                self._abandon(number, reason_or("caller cancelled"), opts)
            raise
        finally:
            del self._waiting[key]
            self._deadlines.end(waiting)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification; to a peer that is gone, none."""
        if not self._pipes.has_room:
            await self._pipes.room()
        self._tell(method, params)

    async def _room_within(self, seconds: float | None, method: str) -> float | None:
        """Wait until a request may be sent; returns what is left of its time."""
        began = anyio.current_time()
        with anyio.move_on_after(seconds) as scope:
            await self._pipes.room()
        if scope.cancelled_caught:
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} could not be sent in time")
        if self._closed:
            raise MCPError.from_error_data(CLOSED)
        return None if seconds is None else max(0.0, seconds - (anyio.current_time() - began))

    def _abandon(self, number: RequestId, reason: str, opts: CallOptions) -> None:
        if opts.get("cancel_on_abandon", True):
            self._tell("notifications/cancelled", {"requestId": number, "reason": reason})

    def _tell(self, method: str, params: Params) -> None:
        if self._closed:
            return
        try:
            self._pipes.write_line(notification(method, params))
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))


INLINE: Final = frozenset({"initialize"})
"""Methods that are answered before the next message is looked at: a client may send both at once."""

_EARLY: Final = 8
"""Notifications before the first request that are kept until the era is known."""


async def serve_connection(server: Answers, dispatcher: Dispatcher) -> None:
    """Serve one client until it leaves."""
    served = _Served(server, dispatcher)
    if hasattr(dispatcher, "admit"):
        cast("Any", dispatcher).admit = served.admit
    try:
        await dispatcher.run(served.on_request, served.on_notify, served.is_dropped)
    finally:
        await served.connection.aclose()


class _Served:
    """One connection, and what its client has said so far."""

    def __init__(self, server: Answers, dispatcher: Dispatcher) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._machine = ServerMachine()
        self.connection = Connection(dispatcher)
        self._early: list[tuple[str, Params]] = []
        self._name = secrets.token_hex(16)

    def admit(self, method: str, params: Params) -> Envelope | MCPError:
        try:
            return self._machine.receive_request(method, params)
        except MCPError as refused:
            return refused

    def is_dropped(self, method: str, params: Params) -> bool:
        """True if a notification that has come is not to be handled, at least not yet."""
        is_known = self._machine.era is not None
        is_taken = self._machine.receive_notification(method, params)
        if not is_known and len(self._early) < _EARLY:
            self._early.append((method, params))
        return not (is_known and is_taken)

    def on_request(self, context: DispatchContext, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        given: Any = context
        way: OneWayContext = given
        accepted = way.accepted or self.admit(method, params)
        if isinstance(accepted, MCPError):
            raise accepted
        if accepted.is_modern:
            # Over message streams and SSE a request is handled in the context of its sender.
            came_on(self._name)
            way.refuse_requests()
            connection = modern_connection(accepted, self._dispatcher)
            request = RequestContext(method, params, way.request_id, connection, way, way.http)
            return _ended(self._server, request)
        request = RequestContext(method, params, way.request_id, self.connection, way, way.http)
        if self._early:
            return self._answered_late(request)
        return self._server.answer(request)

    async def _answered_late(self, request: RequestContext) -> dict[str, Any]:
        early, self._early = self._early, []
        for method, params in early:
            if self._machine.receive_notification(method, params):
                await self.on_notify(request.way, method, params)
        return await self._server.answer(request)

    async def on_notify(self, context: DispatchContext, method: str, params: Params) -> None:
        way = cast("OneWayContext", context)
        connection = self.connection
        if self._machine.era == "modern":
            way.refuse_requests()
            # The envelope is for requests only.
            connection = modern_connection(self._machine.envelope, self._dispatcher)
        await self._server.notified(RequestContext(method, params, None, connection, way, way.http))
        if connection is not self.connection:
            await connection.aclose()


def modern_connection(envelope: Envelope, sender: MessageSender | None = None) -> Connection:
    """The connection of one modern request, of which its envelope says everything."""
    return Connection(
        sender,
        protocol_version=envelope.protocol_version,
        client_info=envelope.client_info,
        client_capabilities=envelope.client_capabilities,
        initialize_accepted=True,
    )


async def _ended(server: Answers, request: RequestContext) -> dict[str, Any]:
    """The answer to a modern request, whose connection ends with it."""
    try:
        return await server.answer(request)
    finally:
        if request.connection.has_callbacks:
            await request.connection.aclose()
