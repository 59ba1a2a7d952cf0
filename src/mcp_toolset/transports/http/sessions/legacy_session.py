"""`LegacySession`: one client of 2025-11-25 or before over HTTP, from its handshake to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.types import Receive, Send

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.deadlines import Deadlines
from mcp_toolset.context.connection import Answers, Connection, RequestContext
from mcp_toolset.protocol.codec import notification, request_key
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.errors import CLOSED, LEGACY_STATUSES
from mcp_toolset.protocol.http_headers import SESSION
from mcp_toolset.protocol.json_rpc import (
    REQUEST_CANCELLED,
    ErrorData,
    MCPError,
    NoBackChannelError,
)
from mcp_toolset.protocol.revisions import is_version_at_least
from mcp_toolset.protocol.server_machine import INITIALIZE, ServerMachine
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.following import Following, StandingStream, gone
from mcp_toolset.transports.http.kept_events import (
    SPAN,
    STANDING,
    EventLog,
    KeptEvents,
    SessionEvents,
    closing,
)
from mcp_toolset.transports.http.post import Outcome, PostedRequest
from mcp_toolset.transports.http.replies import JSON, Headers, error_body, reply
from mcp_toolset.transports.http.sessions.session_table import SessionTable
from mcp_toolset.transports.questions import Questions
from mcp_toolset.transports.requests import Incoming, InFlight

_RESUMES_SINCE: Final = "2025-11-25"
"""Older clients cannot read the event that gives a stream an id."""

COMING_BACK: Final = 15.0
"""Seconds after its client has left in which it can come back, before what it is asked in a call ends."""

_LAST_WORD: Final = 1.0
"""Seconds that a client has to take an answer when serving ends."""

_CANCELLED: Final = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")


@dataclass(frozen=True, slots=True)
class Home:
    """What a session has of the replica that it is at.

    Attributes:
        id: What tells it from others at all replicas.
        prefix: What the ids of its questions begin with here.
        first: The first name of its streams here.
        http: The request that it was begun or gone on with.
        say: Says something outside of calls where its client listens.
    """

    id: str
    prefix: str
    first: int
    http: Request
    say: Callable[[LegacySession, bytes], Awaitable[None]]


class LegacySession:
    """A session: its calls in flight, what its client was asked, and its standing stream.

    Attributes:
        name: Its id.
        owner: The principal that opened it; `None` without authentication.
        peer: The address that opened it.
        users: Requests of which the client is still there.
        connection: What its requests have in common.
        headers: What is said in the head of every response.
        questions: What its client was asked.
        events: What is kept for its client to come back for.
    """

    def __init__(
        self,
        name: str,
        owner: str | None,
        peer: str,
        answers: Answers,
        kept: KeptEvents,
        *,
        streams: bool,
        home: Home | None = None,
    ) -> None:
        """Begin, before the handshake is answered.

        Args:
            name: Its id, which cannot be guessed.
            owner: The principal that opens it.
            peer: The address of that client.
            answers: The server.
            kept: Keeps the events of all sessions.
            streams: Whether answers may become event streams.
            home: What it has of this replica; `None` without replicas.
        """
        self.name, self.owner, self.peer = name, owner, peer
        self.users = 0
        self.connection = Connection(self, session_id=name if home is None else home.id)
        self.headers: Headers = [(SESSION, name.encode())]
        self.questions = Questions() if home is None else Questions(home.prefix)
        self.events = SessionEvents(kept) if home is None else SessionEvents(kept, home.first)
        self._home = home
        self.streams = streams
        self._answers = answers
        self._machine = ServerMachine("legacy")
        self._calls: InFlight[_Call] = InFlight()
        self.watched = Deadlines[_Call](_Call.begin_watch)
        self._standing: StandingStream | None = None
        self._ended = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight, or a question; one may be open longer than its call."""
        return bool(self._calls or self.questions)

    @property
    def is_elsewhere(self) -> bool:
        return self._home is not None

    @property
    def resumes(self) -> bool:
        """Whether its client can come back for the rest of a stream."""
        return is_version_at_least(self.connection.protocol_version, _RESUMES_SINCE)

    @property
    def standing(self) -> StandingStream:
        if self._standing is None:
            self._standing = StandingStream(self.events.standing(numbered=self.resumes))
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
        except MCPError as refused:
            body = error_body(refused.code, refused.message, message["id"], refused.data)
            return await reply(send, 200, body, JSON, self.headers)
        call = _Call(message, http, send, self, table)
        key = request_key(call.number)
        self._calls[key] = call
        try:
            await call.run(self._answers)
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            if call.log is not None:
                call.log.give_up()

    async def notified(self, message: Mapping[str, Any], http: Request | None = None) -> None:
        """Take a notification; the session may have ended before its client took the 202.

        Without `http` another replica got it.
        """
        if http is None and self._home is not None:
            http = self._home.http
        method, params = message["method"], message.get("params")
        if self._ended or not self._machine.receive_notification(method, params):
            return
        if method == "notifications/cancelled":
            self._calls.cancel(params)
        await self._answers.notified(
            RequestContext(method, params, None, self.connection, Incoming(self), http)
        )

    def has(self, place: tuple[int, int]) -> bool:
        """Whether a stream is one of this replica's: the rest of another one is elsewhere."""
        return place[0] - place[0] % SPAN == self.events.first or place[0] % SPAN == STANDING

    async def follow(self, place: tuple[int, int] | None, receive: Receive, send: Send) -> None:
        """Answer a `GET`: with the rest of a call, which goes nowhere else then, or the standing stream.

        Args:
            place: The last event that the client has had, if it says so.
            receive: Says when the client leaves.
            send: Where the response goes.
        """
        own = self.events.first
        name, number = place or (own, None)
        if name % SPAN == STANDING and name != own:
            # The events that its client had were another replica's; all that is kept here is new to it.
            name, number = own, 0
        if number is None or name == own:
            return await self.standing.send(receive, send, self.headers, posted.PING_INTERVAL, number)
        log = self.events.find(name)
        if log is None:
            return await gone(send, self.headers)
        rest = Following(log, number)
        if not log.ended:
            log.detach()
            log.detach = rest.close
        await rest.send(receive, send, self.headers, posted.PING_INTERVAL)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client outside of any call, on the standing stream, at whichever replica it is open."""
        return await self.questions.ask(self._say, method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification outside of any call, on the standing stream."""
        message = notification(method, params)
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
        """End the response that the standing stream goes to."""
        if self._standing is not None:
            self._standing.close()

    def end(self) -> None:
        """End the calls in flight: each is told that the connection has ended."""
        self._ended = True
        for call in list(self._calls.values()):
            call.scope.cancel()
        self.questions.end()
        if self._standing is not None:
            self._standing.end()
        self.events.forget()

    async def aclose(self) -> None:
        """Do what other modules want done at its end."""
        await self.connection.aclose()


class _Call(PostedRequest):
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
        """Call, and answer, whatever happens."""
        self._table.use(self._session)
        try:
            await self._run(answers)
        finally:
            if not self._left:
                self._table.release(self._session)

    async def _run(self, answers: Answers) -> None:
        token = closing.set(self.close_soon) if self._session.resumes else None
        try:
            outcome: Outcome = await self.perform(answers, self._session.connection)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_WORD, shield=True):
                await self.answer(*self.body_of((None, CLOSED), LEGACY_STATUSES))
            raise
        finally:
            if token is not None:
                closing.reset(token)
        if self.cancelled:
            outcome = None, _CANCELLED
        elif outcome == (None, None):
            outcome = None, CLOSED
        if outcome[1] is not None and self._method == INITIALIZE:
            self._forget_unopened()
        answer = self.body_of(outcome, LEGACY_STATUSES)
        # It may take its time, and the result is as big as the answer.
        del outcome
        await self.answer(*answer)

    def _forget_unopened(self) -> None:
        """Drop the session of a handshake that failed, unless an earlier one has opened it."""
        if not self._session.connection.initialize_accepted:
            self._headers = []
            self._table.end(self._session)

    def cancel(self, reason: str | None) -> None:
        """Cancel the handler, because the client has said so, and perhaps why."""
        self.cancelled, self.reason = True, reason
        self.cancel_requested.set()
        self.scope.cancel()

    def keep(self) -> EventLog | None:
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
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client before the answer; what it says comes in a POST of its own."""
        if not self.can_send_request:
            raise NoBackChannelError(method)
        with anyio.CancelScope() as asking:
            self._asking.add(asking)
            try:
                return await self._session.questions.ask(self.say, method, params, opts)
            finally:
                self._asking.discard(asking)
        raise MCPError.from_error_data(CLOSED)
