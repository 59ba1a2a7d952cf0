"""Legacy sessions over HTTP: a table that bounds them, one session, and the questions to its client."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
from starlette.requests import Request
from starlette.types import Receive, Send

from mcp_toolset._records import dataclass
from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.tasks import Deadlines, TaskSet, reason_or
from mcp_toolset.context.connection import Answers, Connection, RequestContext
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import StateError
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.dispatch import CallOptions, Params
from mcp_toolset.protocol.methods import is_version_at_least
from mcp_toolset.protocol.server_machine import INITIALIZE, SESSION, ServerMachine
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.http import post
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.budgets import HttpLimits
from mcp_toolset.transports.http.messages import JSON, Headers, error_body, reply
from mcp_toolset.transports.requests import ById, Incoming, Sent, Waiting, cancel_in, closing

IDLE: Final = 30 * 60.0
"""Seconds after the last request of a session until it ends."""

SHOWN: Final = 8
"""Characters of a session id that a log shows: enough to tell sessions apart, too few to use one."""

_log = logging.getLogger("mcp_toolset.http")


class Session(Protocol):
    """A session as the table sees it."""

    users: int  # requests of which the client is still there

    @property
    def name(self) -> str: ...

    @property
    def owner(self) -> str | None: ...

    @property
    def peer(self) -> str: ...

    @property
    def is_busy(self) -> bool: ...

    def end(self) -> None: ...

    async def aclose(self) -> None: ...


S = TypeVar("S", bound=Session)


class SessionTable(Generic[S]):
    """The open sessions, by their ids."""

    def __init__(self, limits: HttpLimits, idle_time: float = IDLE) -> None:
        self.idle_time = idle_time
        self._limits = limits
        self._sessions: dict[str, S] = {}
        self._peers: Counter[str] = Counter()
        self._idle: dict[str, float] = {}
        """When each idle session was used last; the one that has been idle longest is the first."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing: TaskSet | None = None

    def require_running(self) -> None:
        """Check that sessions can be kept."""
        if self._closing is None:
            raise StateError(
                "the application of this server is not running: enter its lifespan "
                "(`app.router.lifespan_context(app)`) in that of the application that it is mounted in"
            )

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, name: str) -> bool:
        return name in self._sessions

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        closing = self._closing = TaskSet(self._failed)
        try:
            yield
        finally:
            for session in self.all():
                self.end(session)
            self._closing = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            with anyio.CancelScope(shield=True):
                await closing.done()

    def _failed(self) -> None:
        fault = None if self._closing is None else self._closing.fault
        _log.error("a session could not be closed", exc_info=fault)

    def find(self, name: str, owner: str | None) -> S | None:
        session = self._sessions.get(name)
        if session is None:
            _log.info("refused a request of session %s, which is not open", in_log(shortened(name)))
        elif session.owner != owner:
            # It is answered as if the session did not exist.
            _log.warning("refused a request of session %s: another user has opened it", shortened(name))
            return None
        return session

    def admit(self, peer: str, owner: str | None) -> str | None:
        """Make room for one more session of an address and a caller; why there is none, if there is none."""
        limits = self._limits
        places = (
            ((peer,), self._peers[peer], "max_sessions_per_peer", limits.max_sessions_per_peer),
            (self._peers, len(self._sessions), "max_sessions", limits.max_sessions),
        )
        for peers, taken, name, limit in places:
            share = limit - limit // 4
            if taken < (limit if owner is None else share):
                continue
            there = [each for each in self._sessions.values() if each.peer in peers]
            owners = Counter(each.owner for each in there)
            if owner is not None and owners[owner] >= share:
                # Of what is left others have their sessions.
                if not self._end_one_of([each for each in there if each.owner == owner], owners):
                    return _refusal("this caller has", share, name, limit)
            elif taken >= limit and not self._end_one_of(there, owners):
                whose = f"clients at {peer} have" if peers == (peer,) else "clients have"
                return _refusal(whose, limit, name, limit)
        return None

    def add(self, session: S) -> None:
        self._sessions[session.name] = session
        self._peers[session.peer] += 1
        self._rest(session)

    def use(self, session: S) -> None:
        session.users += 1
        self._idle.pop(session.name, None)

    def release(self, session: S) -> None:
        session.users -= 1
        if not session.users and session.name in self._sessions:
            self._rest(session)

    def end(self, session: S) -> None:
        if self._sessions.pop(session.name, None) is None:
            return
        self._idle.pop(session.name, None)
        self._peers[session.peer] -= 1
        if not self._peers[session.peer]:
            del self._peers[session.peer]
        session.end()
        if self._closing is not None:
            self._closing.begin(session.aclose)

    def all(self) -> list[S]:
        return list(self._sessions.values())

    def expire(self) -> None:
        self._timer = None
        latest = asyncio.get_running_loop().time() - self.idle_time
        for name, since in list(self._idle.items()):
            if since > latest:
                break
            _log.info("session %s has ended, as it was idle for %g s", shortened(name), self.idle_time)
            self.end(self._sessions[name])
        self._arm()

    def _rest(self, session: S) -> None:
        self._idle[session.name] = asyncio.get_running_loop().time()
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        since = next(iter(self._idle.values()), None)
        if since is not None and self._closing is not None:
            self._timer = asyncio.get_running_loop().call_at(since + self.idle_time, self.expire)

    def _end_one_of(self, sessions: Sequence[S], owners: Mapping[str | None, int]) -> bool:
        """End the one that has been idle longest, of the caller who has the most; `False` if none is idle."""
        some = {each.name for each in sessions if not each.is_busy}
        idle = [self._sessions[name] for name in self._idle if name in some]
        if idle:
            self.end(max(idle, key=lambda each: owners[each.owner]))
        return bool(idle)


def shortened(name: str) -> str:
    """A session id as a log shows it: without authentication, who knows an id can use the session."""
    return name if len(name) <= SHOWN + 1 else f"{name[:SHOWN]}…"


def _refusal(who: str, number: int, name: str, limit: int) -> str:
    return (
        f"{who} {number} sessions open, all of them in use ({name} is {limit}); end one, or try again later"
    )


_LAST_WORD: Final = 1.0
"""Seconds that a client has to take the last message: a question is taken back, or serving ends."""

Say = Callable[[bytes], Awaitable[None]]
"""Sends a message on the stream that a question belongs to."""


class Questions:
    """The questions of one session; the answer to each comes in a POST of its own."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._waiting: Sent[Waiting] = Sent()
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def ask(
        self, say: Say, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not watched():
            return await self._asked(say, method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._asked(say, method, sent.params, opts or {}))

    async def _asked(self, say: Say, method: str, params: Params, opts: CallOptions) -> dict[str, Any]:
        if self._ended:
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED)
        timeout, timer = opts.get("timeout"), None
        _, number = self._waiting.numbered(None)
        if self._prefix:
            number = f"{self._prefix}{number}"
        line = json_rpc.request_line(number, method, params, with_progress=False)
        waiting = self._waiting[number] = Waiting(None)
        try:
            await say(line)
            if timeout is not None:
                timer = asyncio.get_running_loop().call_later(timeout, waiting.expire)
            return json_rpc.result_of(await waiting.answer)
        except TimeoutError:
            await _take_back(say, number, "timed out")
            raise json_rpc.RequestTimedOut(
                json_rpc.REQUEST_TIMEOUT, f"Request {method!r} timed out"
            ) from None
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_WORD, shield=True):
                await _take_back(say, number, reason_or("caller cancelled"))
            raise
        finally:
            del self._waiting[number]
            if timer is not None:
                timer.cancel()

    def answered(self, message: dict[str, Any]) -> None:
        """Take an answer of the client; one that no call waits for changes nothing."""
        waiting = self._waiting.of(message.get("id"))
        if waiting is not None:
            waiting.settle(message)

    def end(self) -> None:
        self._ended = True
        for waiting in self._waiting.values():
            waiting.settle(None)


async def _take_back(say: Say, number: json_rpc.RequestId, reason: str) -> None:
    await say(json_rpc.notification("notifications/cancelled", {"requestId": number, "reason": reason}))


_RESUMES_SINCE: Final = "2025-11-25"
"""Older clients cannot read the event that gives a stream an id."""

COMING_BACK: Final = 15.0
"""Seconds after its client has left in which it can come back, before what it is asked in a call ends."""

_CANCELLED: Final = json_rpc.ErrorData(code=json_rpc.REQUEST_CANCELLED, message="Request cancelled")


@dataclass(frozen=True, slots=True)
class Home:
    """The state of a session at its replica."""

    id: str  # what tells it from others at all replicas
    prefix: str  # what the ids of its questions begin with here
    first: int  # the first name of its streams here
    http: Request
    say: Callable[[LegacySession, bytes], Awaitable[None]]


class LegacySession:
    """A session: its calls in flight, what its client was asked, and its standing stream."""

    def __init__(
        self,
        name: str,
        owner: str | None,
        peer: str,
        answers: Answers,
        kept: post.KeptEvents,
        *,
        streams: bool,
        home: Home | None = None,
    ) -> None:
        self.name, self.owner, self.peer = name, owner, peer
        self.users = 0  # requests of which the client is still there
        self.connection = Connection(self, session_id=name if home is None else home.id)
        self.aclose = self.connection.aclose
        self.headers: Headers = [(SESSION, name.encode())]
        self.questions = Questions() if home is None else Questions(home.prefix)
        self.events = post.SessionEvents(kept) if home is None else post.SessionEvents(kept, home.first)
        self._home = home
        self.streams = streams
        self._answers = answers
        self._machine = ServerMachine("legacy")
        self._calls: ById[_Call] = ById()
        self.watched = Deadlines[_Call](_Call.begin_watch)
        self._standing: post.StandingStream | None = None
        self._ended = False

    @property
    def is_busy(self) -> bool:
        """True if a call is in flight, or a question; one may be open longer than its call."""
        return bool(self._calls or self.questions)

    @property
    def is_elsewhere(self) -> bool:
        return self._home is not None

    @property
    def resumes(self) -> bool:
        return is_version_at_least(self.connection.protocol_version, _RESUMES_SINCE)

    @property
    def standing(self) -> post.StandingStream:
        if self._standing is None:
            self._standing = post.StandingStream(self.events.standing(numbered=self.resumes))
        return self._standing

    def go_on(self, version: str, info: Mapping[str, Any] | None, capabilities: Mapping[str, Any]) -> None:
        """Take up a session whose handshake was answered by another replica."""
        self._machine = ServerMachine("legacy", version=version, initialize_accepted=True)
        self.connection.accept(version, info, capabilities)

    async def call(
        self, message: Mapping[str, Any], http: Request, send: Send, table: SessionTable[LegacySession]
    ) -> None:
        try:
            self._machine.receive_request(message["method"], message.get("params"))
        except json_rpc.MCPError as refused:
            body = error_body(refused.code, refused.message, message["id"], refused.data)
            return await reply(send, 200, body, JSON, self.headers)
        call = _Call(message, http, send, self, table)
        key = json_rpc.request_key(call.number)
        self._calls[key] = call
        try:
            await call.run(self._answers)
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            if call.log is not None:
                call.log.give_up()

    async def notified(self, message: Mapping[str, Any], http: Request | None = None) -> None:
        """Take a notification, which another replica got where there is no `http`."""
        if http is None and self._home is not None:
            http = self._home.http
        method, params = message["method"], message.get("params")
        if self._ended or not self._machine.receive_notification(method, params):
            return
        if method == "notifications/cancelled":
            cancel_in(self._calls, params)
        await self._answers.notified(
            RequestContext(method, params, None, self.connection, Incoming(self), http)
        )

    def has(self, place: tuple[int, int]) -> bool:
        return place[0] - place[0] % post.SPAN == self.events.first or place[0] % post.SPAN == post.STANDING

    async def follow(self, place: tuple[int, int] | None, receive: Receive, send: Send) -> None:
        """Answer a `GET`: with the rest of a call, which goes nowhere else then, or the standing stream."""
        own = self.events.first
        name, number = place or (own, None)
        if name % post.SPAN == post.STANDING and name != own:
            # The events that its client had were another replica's; all that is kept here is new to it.
            name, number = own, 0
        if number is None or name == own:
            return await self.standing.send(receive, send, self.headers, posted.PING_INTERVAL, number)
        log = self.events.logs.get(name)
        if log is None:
            return await post.gone(send, self.headers)
        rest = post.Following(log, number)
        if not log.ended:
            log.detach()
            log.detach = rest.close
        await rest.send(receive, send, self.headers, posted.PING_INTERVAL)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self.questions.ask(self._say, method, params, opts)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        message = json_rpc.notification(method, params)
        if opts is not None and opts.get("seen_by_all"):
            self._say_here(message)
        else:
            await self._say(message)

    async def _say(self, message: bytes) -> None:
        self._say_here(message)
        if self._home is not None and not self._ended and not self.standing.is_open:
            await self._home.say(self, message)

    def _say_here(self, message: bytes) -> None:
        if not self._ended:
            self.standing.say(message)

    def close_standing(self) -> None:
        if self._standing is not None:
            self._standing.close()

    def end(self) -> None:
        self._ended = True
        for call in list(self._calls.values()):
            call.scope.cancel()
        self.questions.end()
        if self._standing is not None:
            self._standing.end()
        self.events.forget()


class _Call(post.PostedRequest):
    """One request of a session. A client that leaves has not cancelled it (basic/transports).

    It keeps its session only while the client is there: the call may never end.
    """

    def __init__(
        self,
        message: Mapping[str, Any],
        http: Request,
        send: Send,
        session: LegacySession,
        table: SessionTable[LegacySession],
    ) -> None:
        streams = session.streams
        super().__init__(message, http, send, streams=streams, asks=streams, headers=session.headers)
        self._session = session
        self._table = table
        self._left = False
        self._context: Context | None = None
        self._asking = set[anyio.CancelScope]()
        self.reason: str | None = None

    async def run(self, answers: Answers) -> None:
        self._table.use(self._session)
        try:
            await self._run(answers)
        finally:
            if not self._left:
                self._table.release(self._session)

    async def _run(self, answers: Answers) -> None:
        token = closing.set(self.close_soon) if self._session.resumes else None
        try:
            outcome: post.Outcome = await self.perform(answers, self._session.connection)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_WORD, shield=True):
                await self.answer(*self.body_of((None, json_rpc.CLOSED), json_rpc.LEGACY_STATUSES))
            raise
        finally:
            if token is not None:
                closing.reset(token)
        if self.cancelled:
            outcome = None, _CANCELLED
        elif outcome == (None, None):
            outcome = None, json_rpc.CLOSED
        if outcome[1] is not None and self._method == INITIALIZE:
            self._forget_unopened()
        answer = await self.written(outcome, json_rpc.LEGACY_STATUSES)
        # It may take its time, and the result is as big as the answer.
        del outcome
        await self.answer(*answer)

    def _forget_unopened(self) -> None:
        """Drop the session of a handshake that failed, unless an earlier one has opened it."""
        if not self._session.connection.initialize_accepted:
            self._headers = []
            self._table.end(self._session)

    def cancel(self, reason: str | None) -> None:
        self.cancelled, self.reason = True, reason
        self.cancel_requested.set()
        self.scope.cancel()

    def keep(self) -> post.CallEvents | None:
        if not self._session.resumes:
            return None
        log = self._session.events.log(self.number)
        log.detach = self.detach
        return log

    def watched(self) -> Callable[[], object]:
        self._context = copy_context()
        self._session.watched.begin(self, posted.PING_INTERVAL)
        return self._unwatch

    def _unwatch(self) -> None:
        self._session.watched.end(self)
        # Its variables may hold this object.
        self._context = None

    def begin_watch(self) -> None:
        if self._context is not None:
            self._context.run(super().begin_watch)

    async def watch(self) -> None:
        self.beside(self._keep_alive)
        await self.client_gone()
        self._left = True
        self._table.release(self._session)
        if self._session.is_elsewhere:
            return
        await anyio.sleep(COMING_BACK)
        # A client that is back may leave again.
        while self._session.users:  # noqa: ASYNC110
            await anyio.sleep(COMING_BACK)
        # Nobody is there to answer.
        self.can_send_request = False
        for asking in self._asking:
            asking.cancel()

    async def _keep_alive(self) -> None:
        while not self._left:
            await self.ping()
            await anyio.sleep(posted.PING_INTERVAL)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client before the answer; what it says comes in a POST of its own."""
        if not self.can_send_request:
            raise json_rpc.NoBackChannelError(method)
        with anyio.CancelScope() as asking:
            self._asking.add(asking)
            try:
                return await self._session.questions.ask(self.say, method, params, opts)
            finally:
                self._asking.discard(asking)
        raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED)
