"""`HttpClient`: the client's side of streamable HTTP; a request that fails does not affect others.

Each request is a POST, whose reply is the answer or a stream of events that ends with it. A legacy server
has a session besides, and may send on a stream that is opened by GET, and again whenever it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import anyio

from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.backoff import Backoff, Turn
from mcp_toolset.concurrency.tasks import CancelledError, TaskScope, from_outside, new_scope, reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import (
    REFUSES_CREDENTIALS,
    WANTS_CREDENTIALS,
    LoginRequiredError,
    UpstreamError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.protocol.eras import noted, surely_parts
from mcp_toolset.protocol.handshake import NoVerdictError
from mcp_toolset.protocol.methods import is_modern
from mcp_toolset.security.egress import Refusal
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.allowance import PER_LINE, PER_PIECE, PER_REQUEST, FloodError
from mcp_toolset.transports.carrier import (
    EVENTS,
    Carrier,
    Credentials,
    Reply,
    drain,
    is_stream,
    redirect_of,
    release,
    shown,
)
from mcp_toolset.transports.line_dispatcher import MAX_MESSAGE, repaired
from mcp_toolset.transports.pacing import BIG
from mcp_toolset.transports.requests import (
    MAX_NOTIFICATIONS,
    Inbox,
    Incoming,
    PacedRequest,
    Sent,
    SentRequests,
    Waiting,
    calling,
    closing,
)

if TYPE_CHECKING:
    import httpx2

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
        work: The cost of reading beside the data of events; its reader resets it.
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
    """The data that is being read from one server.

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

    def __init__(self, number: json_rpc.RequestId, on_progress: dispatch.ProgressFnT | None) -> None:
        super().__init__(on_progress)
        self.number = number
        self.scope = new_scope()
        self.expired = False
        self.heard = 0  # messages of the server that came on the request's own streams

    def expire(self) -> None:
        self.expired = True
        self.scope.cancel()

    def fail(self, fault: json_rpc.MCPError | UpstreamError) -> None:
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
            return await self._asked(method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._asked(method, sent.params, opts or {}))

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
        """True if the server is told by a message that a request is no longer waited for."""
        return method != "initialize"

    async def _asked(
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
                # A handler may raise anything; the server gets an answer whatever it is.
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


def message_in(data: bytes, *, tells: bool = True) -> dict[str, Any] | None:
    """The message in a body or an event, repaired if need be; `None` if there is none."""
    try:
        message = json_rpc.json_in(data)
    except ValueError:
        try:
            message = repaired(data)
        except ValueError as fault:
            if tells:
                _log.info("a message of %d bytes cannot be read: %s", len(data), in_log(fault))
            return None
    fields = json_rpc.strict_object(message)
    return None if fields is None else noted(fields, data)


_NO_VERDICTS: Final = frozenset((403, 407, 408, 425, 429))
"""Statuses, beside 401, of requests that were not looked at: who asks, when and how often is refused."""

_OF_A_METHOD: Final = frozenset(
    (json_rpc.INVALID_REQUEST, json_rpc.METHOD_NOT_FOUND, json_rpc.INVALID_PARAMS)
)
"""Errors that a server has for a method that it does not know, whatever status it sends them with."""


def is_good(status: int) -> bool:
    """True if a reply of this status brings the answer to a request."""
    return 200 <= status < 300 and status != 202


def refusal_of(reply: Reply, body: bytes, kind: str, url: str) -> json_rpc.MCPError:
    """The server's own error, if it has sent one, else what its status says."""
    if reply.status == 202:
        # The answer comes on this reply; 202 says that none will.
        return json_rpc.MCPError(json_rpc.INVALID_REQUEST, "server answered a request with 202 Accepted")
    target = redirect_of(reply, url)
    if target is not None:
        return json_rpc.MCPError(json_rpc.INVALID_REQUEST, _redirected(url, target))
    found = message_in(body) if kind.startswith("application/json") else None
    error: object = None if found is None else found.get("error")
    if type(error) is dict:
        fields = cast("dict[str, Any]", error)
        code, message = fields.get("code"), fields.get("message")
        if type(code) is int and type(message) is str:
            is_verdict = not _is_no_verdict(reply.status) or (reply.status >= 500 and code in _OF_A_METHOD)
            return (json_rpc.MCPError if is_verdict else NoVerdictError)(code, message, fields.get("data"))
    if reply.status == 404:
        # Without a session it is how a gateway spells that a method is not there.
        return json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Not Found")
    kind_of_error = NoVerdictError if _is_no_verdict(reply.status) else json_rpc.MCPError
    return kind_of_error(json_rpc.INTERNAL_ERROR, f"Server returned an error response: HTTP {reply.status}")


def _is_no_verdict(status: int) -> bool:
    return status in _NO_VERDICTS or status >= 500


def unauthorized(name: str, error: json_rpc.MCPError, *, sent: bool) -> LoginRequiredError:
    """The error for 401: it says nothing about the method, nor about the revision that the server speaks."""
    said = f": {in_log(error.message)}" if error.code != json_rpc.INTERNAL_ERROR else ""
    if sent:
        return LoginRequiredError(name, f"{REFUSES_CREDENTIALS} (HTTP 401{said}); renew them")
    mend = 'give it `"auth": "oauth"` and log in, or `headers` with a token'
    return LoginRequiredError(name, f"{WANTS_CREDENTIALS} (HTTP 401{said}); {mend}")


def _redirected(url: str, target: str) -> str:
    told = in_log(shown(target))
    if url.startswith("https:") and target.startswith("http:"):
        return (
            f"Redirect to {told} not followed: it would leave HTTPS for plain HTTP. The server is "
            "likely behind a proxy whose forwarded headers it does not trust; give the address with https "
            "or mend the settings of the proxy"
        )
    return f"Redirect to {told} not followed; use that URL as the endpoint if it is the intended server"


GOODBYE_TIMEOUT: Final = 1.0
"""Seconds that ending an HTTP session may take."""

TELL_TIMEOUT: Final = 30.0
"""Seconds in which a server must acknowledge a notification or an answer."""

RETRY: Final = 1.0
"""Seconds before the rest of an answer is asked for, where the server has not said when."""

MIN_RETRY: Final = 0.05
MAX_RETRY: Final = 3600.0
"""The shortest and the longest of these waits, whatever the server has said."""

MAX_ATTEMPTS: Final = 2
"""Attempts in a row to get the rest of an answer, or the stream of a session, from a server that refuses."""

_SESSION_ID: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_LAST_ID: Final = "last-event-id"
_JSON: Final = "application/json"
_POSTED: Final = {"accept": f"{_JSON}, {EVENTS}", "content-type": _JSON}
_STREAMED: Final = {"accept": EVENTS, "cache-control": "no-store"}


@asynccontextmanager
async def http_client(
    name: str,
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    credentials: Credentials | None = None,
    refusal: Refusal | None = None,
) -> AsyncGenerator[HttpClient]:
    client = HttpClient(name, url, headers, auth, credentials, refusal)
    try:
        yield client
    finally:
        await client.aclose()


class HttpClient(ClientDispatcher):
    """The dispatcher of one connection over streamable HTTP."""

    def __init__(
        self,
        name: str,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None = None,
        credentials: Credentials | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        super().__init__(Carrier(url, headers, auth, credentials, refusal))
        self._name = name
        self._url = url
        self._intake = Intake()
        self._session: dict[str, str] = {}
        self._seen_session: str | None = None
        self._version: str | None = None
        self._common = _POSTED
        self._listens = False
        # A login may wait for a person.
        self._timeout = TELL_TIMEOUT if auth is None and credentials is None else None

    @property
    def paced(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._intake.paced

    async def aclose(self) -> None:
        if self._seen_session is not None:
            self._session = {_SESSION_ID: self._seen_session}
            self._agree(self._version)
            with anyio.move_on_after(GOODBYE_TIMEOUT, shield=True):
                # Nothing depends on it, and a login flow raises what it likes.
                with suppress(Exception):
                    await (await self._carrier.send("DELETE", self._common)).aclose()
        with anyio.CancelScope(shield=True):
            await self._carrier.aclose()

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        if method == "notifications/cancelled" and is_modern(self._version):
            return
        await super().notify(method, params, opts)
        if method == "notifications/initialized" and self._session and not (self._listens or self._closed):
            self._listens = True
            self._start(self._listen)

    def _is_told_of_cancels(self, method: str) -> bool:
        return method != "initialize" and not is_modern(self._version)

    async def _exchange(
        self, flight: Flight, method: str, body: bytes, opts: dispatch.CallOptions
    ) -> dict[str, Any]:
        given = opts.get("headers") or {}
        if method == "initialize":
            self._session = {}
            self._agree(None)
        elif (version := given.get(_VERSION)) is not None and version != self._version:
            self._agree(version)
        try:
            reply = await self._posted(body, given)
            begins = method == "initialize"
            if begins or self._seen_session is None:
                self._note_session(reply, begins=begins)
            if is_good(reply.status) and is_stream(reply):
                answer = await self._from_events(reply, flight)
            else:
                answer = await self._from_body(reply, flight)
        except UpstreamError:
            raise
        except FloodError as fault:
            raise self._cut(fault) from None
        except self._carrier.faults as fault:
            raise NoVerdictError(json_rpc.CONNECTION_CLOSED, self._carrier.why(fault)) from None
        if begins:
            self._agree_by(answer)
        return answer

    def _cut(self, fault: FloodError) -> UpstreamUnavailableError:
        cut = UpstreamUnavailableError(self._name, str(fault))
        self.end_by(cut)
        return cut

    async def _posted(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        common = self._common
        try:
            reply = await self._carrier.send("POST", {**common, **headers}, body)
        except LoginRequiredError as fault:
            if not fault.for_more:
                self.end_by(fault)
            raise
        except self._carrier.faults:
            raise
        # A login flow raises what it likes. Without credentials no other request gets through either.
        except Exception as fault:
            self.end_by(fault)
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from fault
        if reply.status == 404 and _SESSION_ID in common:
            # The answer to a lost session (2025-11-25, basic/transports, "Session Management").
            await release(reply)
            self._session, self._seen_session = {}, None
            self.end_by(UpstreamUnavailableError(self._name, "the server has ended the session"))
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from self._fault
        return reply

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification or an answer; if that fails, once more.

        The server takes the same one twice without harm, while without it it would wait in vain.
        """
        why = f"no reply within {TELL_TIMEOUT:g} s"
        with anyio.move_on_after(self._timeout):
            for _ in range(2):
                try:
                    await drain(await self._posted(body, headers))
                except self._carrier.faults as fault:
                    why = self._carrier.why(fault)
                except json_rpc.MCPError:
                    return
                else:
                    return
        _log.warning("a message to %s was lost: %s", self._carrier.host, in_log(why))

    async def _from_body(self, reply: Reply, flight: Flight) -> dict[str, Any]:
        kind = reply.header("content-type").lower()
        try:
            body = await self._whole(reply)
        except BaseException:
            await release(reply)
            raise
        await reply.aclose()
        if not is_good(reply.status):
            refusal = refusal_of(reply, body, kind, self._url)
            if reply.status == 401:
                raise unauthorized(self._name, refusal, sent=self._carrier.sends_credentials)
            raise refusal
        message = message_in(body) if kind.startswith(_JSON) or not kind else None
        if message is not None and "method" not in message:
            if self.is_for(message, flight):
                return message
            raise json_rpc.MCPError(
                json_rpc.INVALID_REQUEST, f"its answer has the id of another request than {flight.number}"
            )
        if kind.startswith(_JSON):
            raise json_rpc.MCPError(json_rpc.PARSE_ERROR, json_rpc.UNREADABLE)
        raise json_rpc.MCPError(json_rpc.INVALID_REQUEST, f"Unexpected content type: {in_log(kind)}")

    async def _whole(self, reply: Reply) -> bytes:
        meter, parts, size = Meter(self._intake), list[bytes](), 0
        try:
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > MAX_MESSAGE:
                    raise json_rpc.MCPError(
                        json_rpc.PARSE_ERROR, f"its answer has more than {MAX_MESSAGE} bytes"
                    )
                await meter.room(len(chunk))
                parts.append(chunk)
        finally:
            meter.give_back()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _from_events(self, reply: Reply, flight: Flight) -> dict[str, Any]:
        """The answer at the end of a stream, whose server may close it early, to be asked for the rest."""
        parser, backoff, heard = EventParser(MAX_MESSAGE), Backoff(), -1
        while True:
            began = anyio.current_time()
            try:
                answer = await self._read_events(reply, parser, flight)
            except BaseException as fault:
                await release(reply)
                if isinstance(fault, FloodError) or not isinstance(fault, self._carrier.faults):
                    raise
                is_whole = False
            else:
                if answer is not None:
                    await self._drain_later(reply)
                    return answer
                await reply.aclose()
                is_whole = True
            if not parser.last_id:
                raise json_rpc.MCPError(json_rpc.CONNECTION_CLOSED, "SSE stream ended without a response")
            if is_whole and (close := closing.get()) is not None:
                # What the server frees is freed towards the client of the call too.
                close()
            if flight.heard > heard:
                backoff, wait = Backoff(), 0.0
            else:
                # A server that has nothing more yet is asked less and less often, whatever it says.
                wait = backoff.after(anyio.current_time() - began)
            heard = flight.heard
            reply = await self._resumed(parser, wait)
            parser = EventParser(MAX_MESSAGE, parser.last_id, parser.retry)

    async def _read_events(self, reply: Reply, parser: EventParser, flight: Flight) -> dict[str, Any] | None:
        meter = Meter(self._intake)
        try:
            async with aclosing(self._events(reply, parser, meter)) as events:
                async for event in events:
                    if event.name not in (b"", b"message") or not event.data:
                        continue
                    message = message_in(event.data)
                    if message is None:
                        raise json_rpc.MCPError(json_rpc.PARSE_ERROR, json_rpc.UNREADABLE)
                    if "method" in message:
                        flight.heard += 1
                        self._take(message, len(event.data))
                    elif self.is_for(message, flight):
                        return message
        except EventTooLongError as fault:
            raise json_rpc.MCPError(json_rpc.CONNECTION_CLOSED, f"SSE stream failed: {fault}") from None
        finally:
            meter.give_back()
        return None

    async def _resumed(self, parser: EventParser, wait: float) -> Reply:
        """The rest of a stream, asked for after `wait` seconds, or as many as the server has said."""
        said = RETRY if parser.retry is None else parser.retry / 1000
        wait = max(MIN_RETRY, wait, min(said, MAX_RETRY))
        for _ in range(MAX_ATTEMPTS):
            await anyio.sleep(wait)
            with suppress(*self._carrier.faults):
                reply = await self._carrier.send("GET", self._for_stream(parser))
                if reply.status == 200 and is_stream(reply):
                    return reply
                await drain(reply)
        raise json_rpc.MCPError(
            json_rpc.CONNECTION_CLOSED, "SSE stream ended and reconnection attempts were exhausted"
        )

    async def _listen(self) -> None:
        """Read what a legacy server sends without a call, for as long as it lets itself be asked."""
        backoff, refused, parser = Backoff(), 0, EventParser(MAX_MESSAGE)
        while refused < MAX_ATTEMPTS:
            began = anyio.current_time()
            parser = EventParser(MAX_MESSAGE, parser.last_id, parser.retry)
            # A server that is gone for a while is no reason to stop.
            with suppress(*self._carrier.faults):
                reply = await self._carrier.send("GET", self._for_stream(parser))
                if reply.status == 405:
                    return await drain(reply)
                refused = 0 if reply.status == 200 and is_stream(reply) else refused + 1
                if refused:
                    await drain(reply)
                else:
                    await self._heard(reply, parser)
            wait = backoff.after(anyio.current_time() - began)
            await anyio.sleep(max(wait, min((parser.retry or 0) / 1000, MAX_RETRY)))

    async def _heard(self, reply: Reply, parser: EventParser) -> None:
        try:
            async for event in self._events(reply, parser):
                answer = self._answer_in(event)
                if answer is not None and (flight := self.flight_of(answer)) is not None:
                    flight.settle(answer)
                    flight.scope.cancel()
        except EventTooLongError as fault:
            _log.warning("%s: %s", self._carrier.host, fault)
        except FloodError as fault:
            self._cut(fault)
        finally:
            await release(reply)

    async def _drain_later(self, reply: Reply) -> None:
        """Read the end of a stream, so that its connection can be used again."""
        if self._closed:
            await release(reply)
        else:
            self._start(lambda: self._end_of(reply))

    async def _end_of(self, reply: Reply) -> None:
        with suppress(*self._carrier.faults):
            await drain(reply)

    def _note_session(self, reply: Reply, *, begins: bool) -> None:
        session = reply.header(_SESSION_ID)
        if session:
            self._seen_session = session
            if begins:
                self._session = {_SESSION_ID: session}
                self._agree(self._version)

    def _agree_by(self, answer: dict[str, Any]) -> None:
        result: Any = answer.get("result")
        version: object = result.get("protocolVersion") if type(result) is dict else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(version, str) and version.isascii() and version.isprintable():
            self._agree(version)

    def _agree(self, version: str | None) -> None:
        self._version = version
        named = {} if version is None else {_VERSION: version}
        self._common = {**_POSTED, **self._session, **named}

    def _for_stream(self, parser: EventParser) -> dict[str, str]:
        last = {_LAST_ID: parser.last_id.decode("latin-1")} if parser.last_id else {}
        return {**self._common, **_STREAMED, **last}
