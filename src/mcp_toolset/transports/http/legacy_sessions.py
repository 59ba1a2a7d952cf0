"""`LegacySessions`: calls in legacy sessions over HTTP (2025-11-25 and before), past the SDK's transport.

A session is the SDK's: it opens it, checks who may use it, and ends it. What is taken out of it are the
POSTs with a plain `tools/call`, which are answered here, with JSON where nothing has to be said before the
result. All other messages go on to the SDK. Those that are about a call under way here,
a cancellation or the answer to a question that was asked in it, take effect once the SDK has accepted them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import anyio
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolset.concurrency.cancel_reason import reason_in, reason_or
from mcp_toolset.context.connection import Connection
from mcp_toolset.protocol.codec import json_of, request_key, request_line, result_of, strict_object
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import SESSION
from mcp_toolset.protocol.errors import CLOSED, LEGACY_STATUSES
from mcp_toolset.protocol.json_rpc import (
    REQUEST_CANCELLED,
    REQUEST_TIMEOUT,
    ErrorData,
    NoBackChannelError,
    RequestId,
    RequestTimedOut,
)
from mcp_toolset.protocol.revisions import is_version_at_least
from mcp_toolset.sdk.http_sessions import SessionManager, held_open
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.headers import Body
from mcp_toolset.transports.http.kept_events import EventLog, KeptEvents, SessionEvents, closing
from mcp_toolset.transports.http.limits import HttpLimits
from mcp_toolset.transports.http.post import Answer, Outcome, PostedRequest
from mcp_toolset.transports.http.resumed import RestOfCall, gone
from mcp_toolset.transports.http.server import HttpServer
from mcp_toolset.transports.requests import Waiting

HOLDS: Final = 20
"""How many times in the idle time of a session its use is told to the SDK."""

_METHOD: Final = "tools/call"
_RESUMES_SINCE: Final = "2025-11-25"
"""Older clients cannot read the event that gives a stream an id."""

_LAST_WORD: Final = 1.0
"""Seconds that a client has to take an answer when serving ends."""

_FIRST_ID: Final = 1_000_000_000
"""The id of the first request to a client: the SDK counts its own ones of the same session from one."""

_FIELDS: Final = frozenset(("jsonrpc", "id", "method", "params"))
_CANCELLED: Final = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")


class LegacySessions:
    """The sessions of one endpoint in which calls are answered here.

    Attributes:
        resumes: Whether the SDK keeps events, so that a client can have those it has missed.
    """

    def __init__(self, sdk: ASGIApp, server: HttpServer, manager: SessionManager, limits: HttpLimits) -> None:
        """Stand before `sdk`, whose sessions `manager` keeps."""
        self._sdk = sdk
        self._server = server
        self._manager = manager
        # What can be resumed is kept by the SDK, and without sessions there is nothing to be found.
        self.resumes = manager.event_store is not None
        self._off = manager.stateless or self.resumes
        self._known: dict[bytes, _Session] = {}
        self._kept = KeptEvents(limits)

    def find(self, name: bytes) -> _Session | None:
        """A session by the value of its header, if it is open and calls in it can be answered here."""
        session = self._known.get(name)
        if session is None and not self._off:
            connection = self._server.over_http(name.decode("latin-1"))
            if connection is not None and connection.initialize_accepted:
                session = self._known[name] = self._opened(name, connection)
        return session

    def is_busy(self, name: str) -> bool:
        """Whether a call is under way here in a session."""
        session = self._known.get(name.encode("latin-1"))
        return session is not None and session.busy

    def _opened(self, name: bytes, connection: Connection) -> _Session:
        session = _Session(
            name,
            connection,
            self._sdk,
            self._server.quick,
            SessionEvents(self._kept),
            idle=self._manager.session_idle_timeout,
            streams=not self._manager.json_response,
        )

        def end() -> None:
            self._known.pop(name, None)
            session.end()

        connection.on_close(end)
        return session


class _Session:
    """One session, the calls under way in it, and what their clients were asked."""

    def __init__(
        self,
        name: bytes,
        connection: Connection,
        sdk: ASGIApp,
        find: Callable[[str], Answer | None],
        events: SessionEvents,
        *,
        idle: float | None,
        streams: bool,
    ) -> None:
        self.headers = [(SESSION, name)]
        self.connection = connection
        self.streams = streams
        self.events = events
        self.resumes = is_version_at_least(connection.protocol_version, _RESUMES_SINCE)
        self.pause = posted.PING_INTERVAL if idle is None else min(posted.PING_INTERVAL, idle / HOLDS)
        self._sdk = sdk
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._hold_for = float("inf") if idle is None else idle / HOLDS
        self._held_until = -1.0
        self._ended = False
        self._calls: dict[RequestId, _Call] = {}
        self._waiting: dict[RequestId, Waiting] = {}
        self._next_id = _FIRST_ID

    async def take(self, scope: Scope, receive: Receive, send: Send, *, usual: bool) -> None:
        """Answer a request here, or pass it on; `usual` says that the SDK would take it as it is."""
        anonymous = scope.get("user") is None
        if scope["method"] == "DELETE":
            return await self._sdk(scope, receive, _when(send, 200, self.end))
        if not anonymous or scope["method"] != "POST" or not (usual or self.busy):
            return await self._sdk(scope, receive, send)
        body = Body(receive)
        message = _message(await body.read())
        quick = self._quick(message) if usual and message is not None else None
        if quick is not None and await self.hold(scope):
            await self._answer(cast("dict[str, Any]", message), quick, Request(scope, receive), send)
        elif not usual or not body.left:
            await self._sdk(scope, body.receive, self._noting(message, send))

    def _quick(self, message: dict[str, Any]) -> Answer | None:
        """How to answer a request, if it is a plain call."""
        plain = (
            message.get("method") == _METHOD
            and type(message.get("id")) in (int, str)
            and type(message.get("params", {})) is dict
            and message.keys() <= _FIELDS
        )
        return self._find(_METHOD) if plain else None

    async def hold(self, scope: Scope) -> bool:
        """Keep the session from ending as idle, if that was not done lately; whether it is open."""
        if not self._ended and self._loop.time() >= self._held_until:
            if not await held_open(self._sdk, scope):
                return False
            self._held_until = self._loop.time() + self._hold_for
        return not self._ended

    async def _answer(self, message: dict[str, Any], quick: Answer, http: Request, send: Send) -> None:
        call = _Call(message, http, send, self)
        key = request_key(call.request_id)
        self._calls[key] = call
        try:
            await call.run(quick)
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            if call.log is not None:
                call.log.give_up()
        await self.hold(http.scope)

    async def resume(self, name: int, number: int, scope: Scope, receive: Receive, send: Send) -> bool:
        """Send the rest of a call; `False` if the session is not open to who asks.

        The connection that the events of the call went to so far gets nothing more.
        """
        if scope.get("user") is not None or not await self.hold(scope):
            return False
        log = self.events.find(name)
        if log is None:
            await gone(scope, receive, send, self.headers)
            return True
        rest = RestOfCall(log, number)
        if not log.ended:
            log.detach()
            log.detach = rest.close
        await rest.send(receive, send, self.headers, lambda: self.hold(scope), self.pause)
        await self.hold(scope)
        return True

    @property
    def busy(self) -> bool:
        """Whether a message can be about anything here; a question may be open longer than its call."""
        return bool(self._calls or self._waiting)

    def _noting(self, message: dict[str, Any] | None, send: Send) -> Send:
        """`send`, which has a message take effect on what is under way here once the SDK accepts it."""
        if message is None or not self.busy:
            return send
        method, number = message.get("method"), message.get("id")
        if method is None and type(number) in (int, str):
            waiting = self._waiting.get(request_key(cast("RequestId", number)))
            return send if waiting is None else _when(send, 202, lambda: waiting.settle(message))
        params: object = message.get("params")
        if method == "notifications/cancelled" and isinstance(params, dict):
            said = cast("dict[str, Any]", params)
            number, reason = said.get("requestId"), reason_in(said)
            if type(number) in (int, str):
                return _when(send, 202, lambda: self._cancel(cast("RequestId", number), reason))
        return send

    def _cancel(self, number: RequestId, reason: str | None) -> None:
        call = self._calls.get(request_key(number))
        if call is not None:
            call.cancel(reason)

    def expect(self) -> tuple[int, Waiting]:
        """The id of the next request to the client, and its answer to come."""
        self._next_id += 1
        waiting = self._waiting[self._next_id] = Waiting(None)
        return self._next_id, waiting

    def forget(self, number: int) -> None:
        """Expect the answer no more."""
        del self._waiting[number]

    def end(self) -> None:
        """End what is under way: whoever waits is told that there is no connection any more."""
        self._ended = True
        for call in list(self._calls.values()):
            call.scope.cancel()
        for waiting in self._waiting.values():
            waiting.settle(None)
        self.events.forget()


class _Call(PostedRequest):
    """One request of a session. A client that leaves has not cancelled it (basic/transports).

    It keeps its session only while the client is there: the call may never end.
    """

    def __init__(self, message: Mapping[str, Any], http: Request, send: Send, session: _Session) -> None:
        streams = session.streams
        super().__init__(message, http, send, streams=streams, asks=streams, headers=session.headers)
        self._session = session
        self._left = False
        self.reason: str | None = None

    async def run(self, quick: Answer) -> None:
        """Call, and answer, whatever happens."""
        token = closing.set(self.close_soon) if self._session.resumes else None
        try:
            outcome: Outcome = await self.perform(quick, self._session.connection, self._session.pause)
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
        answer = self.body_of(outcome, LEGACY_STATUSES)
        # It may take its time, and the result is as big as the answer.
        del outcome
        await self.answer(*answer)

    def cancel(self, reason: str | None) -> None:
        """Cancel the handler, because the client has said so, and perhaps why."""
        self.cancelled, self.reason = True, reason
        self.cancel_requested.set()
        self.scope.cancel()

    def keep(self) -> EventLog | None:
        if not self._session.resumes:
            return None
        log = self._session.events.log(self.request_id)
        log.detach = self.detach
        return log

    async def watch(self) -> None:
        self.beside(self._keep_alive)
        await self.client_gone()
        self._left = True

    async def _keep_alive(self) -> None:
        while not self._left:
            await self.ping()
            await self._session.hold(self.http.scope)
            await anyio.sleep(self._session.pause)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client before the answer; what it says comes in a POST of its own.

        Raises:
            MCPError: it answered with an error, or not in time, or nothing can be asked any more.
        """
        if not self.can_send_request:
            raise NoBackChannelError(method)
        timeout = (opts or {}).get("timeout")
        number, waiting = self._session.expect()
        timer = None
        try:
            await self.say(request_line(number, method, params, with_progress=False))
            if timeout is not None:
                timer = asyncio.get_running_loop().call_later(timeout, waiting.expire)
            return result_of(await waiting.answer)
        except TimeoutError:
            await self._abandon(number, "timed out")
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_WORD, shield=True):
                await self._abandon(number, reason_or("caller cancelled"))
            raise
        finally:
            self._session.forget(number)
            if timer is not None:
                timer.cancel()

    async def _abandon(self, number: int, reason: str) -> None:
        params = {"requestId": number, "reason": reason}
        await self.say(json_of({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))


def _message(body: bytes | None) -> dict[str, Any] | None:
    """The message in a body, if it is one of JSON-RPC 2.0."""
    try:
        return None if body is None else strict_object(from_json(body))
    except ValueError:
        return None


def _when(send: Send, status: int, then: Callable[[], None]) -> Callable[[Message], Awaitable[None]]:
    """`send`, with something to be done when a response begins with a status."""

    async def watched(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == status:
            then()
        await send(message)

    return watched
