"""`HttpEndpoint`: `/mcp`, the endpoint of streamable HTTP in both eras; `ModernPosts`: its modern part."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref

import anyio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_toolset.context.connection import HOLD, Answers, Connection, principal_of
from mcp_toolset.errors import StoreError
from mcp_toolset.protocol import json_rpc, server_machine
from mcp_toolset.protocol.methods import is_modern
from mcp_toolset.transports.http import budgets, messages
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.arrival import NoteForeign
from mcp_toolset.transports.http.post import KeptEvents, PostedRequest, kind_of_posted, place_of
from mcp_toolset.transports.http.sessions import Home, LegacySession, SessionTable
from mcp_toolset.transports.serve_connection import modern_connection

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.transports.http.shared_sessions import SharedSessions

_CALL: Final = "tools/call"
_LISTEN: Final = "subscriptions/listen"
MAX_LISTENING: Final = 128 * 1024
"""Bytes of a request to listen, as `held_by` counts them; thousands of such requests may be open for days."""

_LONE_SURROGATE: Final = (
    "Invalid request parameters: a text has half of a character (a lone surrogate), which no answer can "
    "repeat; send whole characters"
)
_TOO_LONG: Final = "Invalid request parameters: a request to listen is kept; name fewer resources in one"
_WATCHED_AFTER: Final = 0.02
"""Seconds after which a call in flight is watched for the disconnect of its client."""

_ROUTING_HEADERS: Final = (
    (messages.VERSION, server_machine.VERSION_HEADER),
    (messages.METHOD, server_machine.METHOD_HEADER),
    (messages.NAME, server_machine.NAME_HEADER),
)


class ModernPosts:
    """Answers the POST requests of the modern era, and those with an unknown version."""

    def __init__(self, answers: Answers, *, streams: bool) -> None:
        self._answers = answers
        self._streams = streams
        self._machine = server_machine.ServerMachine("modern")
        self._annotated: dict[str, tuple[object, bool]] = {}

    async def take(
        self, scope: Scope, head: messages.Head, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Check and answer one POST request."""
        if not head.begins_as_json:
            return await messages.reply(send, 400, b"Invalid Content-Type header")
        takes_json, takes_events = head.accepts
        if not takes_json or (self._streams and not takes_events):
            return await messages.reply(send, 406)
        try:
            message, is_whole = _decoded(body)
        except (ValueError, RecursionError) as fault:
            text = f"Parse error: {fault}" if isinstance(fault, json_rpc.HeavyError) else "Parse error"
            return await messages.refuse(send, 400, json_rpc.PARSE_ERROR, text)
        kind = server_machine.kind_of(message)
        if kind == "notification":
            return await self._acknowledge(head, send)
        if kind != "request":
            text = "Body must be a single JSON-RPC request or notification object"
            return await messages.refuse(
                send, 400, json_rpc.INVALID_REQUEST, text, number=server_machine.id_of(message)
            )
        if message["method"] == _LISTEN and not takes_events:
            return await messages.reply(send, 406)
        unusable = _unusable(message, body, is_whole=is_whole)
        if unusable:
            return await messages.refuse(send, 400, json_rpc.INVALID_PARAMS, unusable, number=message["id"])
        try:
            connection = self._checked(message, head, scope)
        except json_rpc.MCPError as refused:
            return await _refused(send, message["id"], refused.error)
        await self._answer(message, connection, Request(scope, receive), send)

    async def _acknowledge(self, head: messages.Head, send: Send) -> None:
        """Answer a notification."""
        version = head.fields.get(messages.VERSION, b"").decode("latin-1")
        if is_modern(version):
            await messages.reply(send, 202)
        else:
            await _refused(send, None, server_machine.unsupported_version(version).error)

    def _checked(self, message: Mapping[str, Any], head: messages.Head, scope: Scope) -> Connection:
        """Check a request and its headers, and make its connection; `MCPError` if it is refused."""
        fields = head.fields
        routing = {name: fields[raw].decode("latin-1") for raw, name in _ROUTING_HEADERS if raw in fields}
        if head.repeats:
            server_machine.check_routing_once(raw.decode("latin-1") for raw, _ in head.all)
        method, params = message["method"], message.get("params")
        envelope = self._machine.receive_request(method, params, routing)
        if method == _CALL:
            self._check_arguments(cast("Mapping[str, Any]", params), head, scope)
        return modern_connection(envelope)

    def _check_arguments(self, params: Mapping[str, Any], head: messages.Head, scope: Scope) -> None:
        """Check that the `Mcp-Param` headers repeat the arguments of a call."""
        arguments: Any = params.get("arguments") or {}
        if not arguments and not any(name.startswith(messages.PARAM) for name in head.fields):
            return
        name: str = params["name"]
        schema = self._answers.input_schema(name, scope)
        if schema is not None and self._has_annotations(name, schema):
            headers = [(raw.decode("latin-1"), value.decode("latin-1")) for raw, value in head.all]
            server_machine.check_param_headers(schema, arguments, headers)

    def _has_annotations(self, name: str, schema: Mapping[str, Any]) -> bool:
        """True if a schema names headers for arguments; remembered for each tool."""
        known = self._annotated.get(name)
        if known is None or known[0] is not schema:
            known = self._annotated[name] = (schema, bool(server_machine.header_map(schema)))
        return known[1]

    async def _answer(
        self, message: Mapping[str, Any], connection: Connection, http: Request, send: Send
    ) -> None:
        """Run a checked request, and send its answer."""
        streams = self._streams or message["method"] == _LISTEN
        exchange = _Exchange(message, http, send, streams=streams)
        try:
            outcome = await exchange.perform(self._answers, connection)
            if outcome != (None, None):
                answer = await exchange.written(outcome, json_rpc.MODERN_STATUSES)
                # Sending may take long, so the memory of the result is freed first.
                del outcome
                await exchange.answer(*answer)
        finally:
            if connection.has_callbacks:
                await connection.aclose()


class _Exchange(PostedRequest):
    """One modern request: a disconnect of its client cancels it; it cannot send requests to the client."""

    def watched(self) -> Callable[[], object]:
        # A timer of each request: most are cancelled in time, while a common timer would wake the process.
        return asyncio.get_running_loop().call_later(_WATCHED_AFTER, self.begin_watch).cancel

    async def watch(self) -> None:
        self.beside(self._keep_alive)
        await self.client_gone()
        self.scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(posted.PING_INTERVAL)
            await self.ping()


async def _refused(send: Send, number: json_rpc.RequestId | None, error: json_rpc.ErrorData) -> None:
    status = json_rpc.MODERN_STATUSES.get(error.code, 200)
    await messages.refuse(send, status, error.code, error.message, number=number, data=error.data)


def _decoded(body: bytes) -> tuple[Any, bool]:
    """The message in a body, and `False` if a text in it may have a lone surrogate."""
    try:
        return json_rpc.json_in(body, json_rpc.MAX_ASKED), True
    except json_rpc.HeavyError:
        raise
    except ValueError:
        # The standard library also reads texts with a lone surrogate, which some clients write.
        message: Any = json.loads(body)
    _check_sendable(message)
    return message, False


def _check_sendable(message: Any) -> None:
    """Raise `ValueError` for an id or a progress token that could not be sent back."""
    if type(message) is dict:
        fields = cast("dict[str, Any]", message)
        json_rpc.json_of((fields.get("id"), json_rpc.progress_token(fields.get("params"))))


def _unusable(message: Mapping[str, Any], body: bytes, *, is_whole: bool) -> str:
    """The reason to refuse the parameters of a request; empty if they are accepted."""
    if message["method"] == _LISTEN and json_rpc.held_by(body) > MAX_LISTENING:
        return _TOO_LONG
    # The arguments of a call are checked against the schema of its tool, with an error for the model.
    if is_whole or message["method"] == _CALL:
        return ""
    try:
        json_rpc.json_of(message.get("params"))
    except ValueError:
        return _LONE_SURROGATE
    return ""


_NOT_UTF_8: Final = (
    "Parse error: the body is not in UTF-8 (it looks like UTF-16 or UTF-32); send JSON in UTF-8"
)
_NO_HEADERS: Final[messages.Headers] = []


class HttpEndpoint:
    """The endpoint of streamable HTTP, as an ASGI application."""

    def __init__(
        self,
        answers: Answers,
        limits: budgets.HttpLimits,
        load: budgets.Load,
        *,
        streams: bool = True,
        shared: SharedState | None = None,
        note_foreign: NoteForeign,
    ) -> None:
        self._note_foreign = note_foreign
        self.sessions: SessionTable[LegacySession] = SessionTable(limits)
        self._answers = answers
        self._load = load
        self._streams = streams
        self._modern = ModernPosts(answers, streams=streams)
        self._kept = KeptEvents(limits)
        self._shared: SharedSessions | None = None
        if shared is not None:
            # Few servers have replicas.
            from mcp_toolset.transports.http.shared_sessions import SharedSessions

            self._shared = SharedSessions(shared, answers, self.sessions)

    def end_streams(self) -> None:
        """End the streams of all clients."""
        self._answers.end_streams()
        for session in self.sessions.all():
            session.close_standing()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.take(scope, messages.Head(scope["headers"]), receive, send)

    async def take(self, scope: Scope, head: messages.Head, receive: Receive, send: Send) -> None:
        """Read the body of a request, and answer the request."""
        self.sessions.require_running()
        if "user" in scope:
            principal_of(scope)
        full = partial(messages.refuse, send, 503, json_rpc.INTERNAL_ERROR, budgets.FULL)
        taken = await self._load.body(scope, head, receive, send, full)
        if taken is not None:
            body, hold = taken
            held = scope if hold is None else {**scope, HOLD: ref(hold)}
            await self._take_with_body(held, head, body, receive, send)

    async def _take_with_body(
        self, scope: Scope, head: messages.Head, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer a request by its era and method."""
        is_post = scope["method"] == "POST"
        if is_post and messages.is_wide(body):
            await messages.refuse(send, 400, json_rpc.PARSE_ERROR, _NOT_UTF_8)
        elif head.is_legacy:
            await self._legacy(scope, head, body, receive, send)
        elif is_post:
            await self._modern.take(scope, head, body, receive, send)
        else:
            await messages.reply(send, 405, headers=[(b"allow", b"POST")])

    async def _legacy(
        self, scope: Scope, head: messages.Head, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Find the session of a legacy request, and answer the request by its method."""
        name, session = head.session, None
        if name is not None:
            owner = principal_of(scope)
            if self._shared is not None and name not in self.sessions:
                refused = await self._adopted(self._shared, name, owner, Request(scope, receive))
                if refused is not None:
                    return await messages.refuse(send, 503, json_rpc.INTERNAL_ERROR, refused)
            session = self.sessions.find(name, owner)
            if session is None:
                self._note_foreign(scope, name)
                return await messages.refuse(send, 404, json_rpc.INVALID_REQUEST, "Session not found")
        match scope["method"]:
            case "POST":
                await self._post(scope, head, body, session, receive, send)
            case "GET":
                await self._get(head, session, receive, send)
            case "DELETE":
                await self._delete(session, send)
            case _:
                headers = [(b"allow", b"GET, POST, DELETE"), *_headers_of(session)]
                await messages.refuse(
                    send, 405, json_rpc.INVALID_REQUEST, "Method Not Allowed", headers=headers
                )

    async def _post(
        self,
        scope: Scope,
        head: messages.Head,
        body: bytes,
        session: LegacySession | None,
        receive: Receive,
        send: Send,
    ) -> None:
        """Check a posted message, open a session if it is `initialize`, and take the message."""
        if not head.begins_as_json:
            return await messages.reply(send, 400, b"Invalid Content-Type header")
        refused = self._refusal_of(head)
        if refused is not None:
            return await messages.refuse(
                send, refused[0], json_rpc.INVALID_REQUEST, refused[1], headers=_headers_of(session)
            )
        try:
            message = json_rpc.json_in(body, json_rpc.MAX_ASKED)
        except ValueError as fault:
            text = f"Parse error: {fault}"
            return await messages.refuse(send, 400, json_rpc.PARSE_ERROR, text, headers=_headers_of(session))
        kind = kind_of_posted(message)
        if kind == "garbage":
            if (number := server_machine.id_of(message)) is not None:
                return await messages.refuse(
                    send,
                    400,
                    json_rpc.NO_MESSAGE.code,
                    json_rpc.NO_MESSAGE.message,
                    number=number,
                    headers=_headers_of(session),
                )
            text = "Validation error: the body is no single JSON-RPC message"
            return await messages.refuse(
                send, 400, json_rpc.INVALID_PARAMS, text, headers=_headers_of(session)
            )
        http = Request(scope, receive)
        if session is None:
            session = await self._begin_session(message, kind, http, send)
        if session is not None:
            await self._take(message, kind, session, http, send)

    async def _begin_session(
        self, message: dict[str, Any], kind: server_machine.Kind, http: Request, send: Send
    ) -> LegacySession | None:
        """Open a session by `initialize`; if that is refused, answer the request and return `None`."""
        if kind != "request" or message["method"] != "initialize":
            return await _refuse_without_session(send)
        try:
            # Checked first: a refused handshake must not end another session to make room.
            server_machine.ServerMachine("legacy").receive_request(message["method"], message.get("params"))
        except json_rpc.MCPError as fault:
            return await messages.refuse(
                send, 200, fault.code, fault.message, number=message["id"], data=fault.data
            )
        opened = self._opened(http, message["params"])
        if isinstance(opened, LegacySession):
            return opened
        return await messages.refuse(send, 503, json_rpc.INTERNAL_ERROR, opened)

    async def _take(
        self,
        message: dict[str, Any],
        kind: server_machine.Kind,
        session: LegacySession,
        http: Request,
        send: Send,
    ) -> None:
        """Take a message of an open session."""
        if kind == "request":
            return await session.call(message, http, send, self.sessions)
        self.sessions.use(session)
        try:
            if kind == "answer":
                session.questions.answered(message)
                if self._shared is not None:
                    await self._shared.answered(session, message)
            await messages.reply(send, 202, kind=messages.JSON, headers=session.headers)
            if kind == "notification":
                await session.notified(message, http)
                if self._shared is not None:
                    await self._shared.notified(session, message)
        finally:
            self.sessions.release(session)

    def _refusal_of(self, head: messages.Head) -> tuple[int, str] | None:
        """The status and text for headers that the transport does not allow; `None` if it allows them."""
        takes_json, takes_events = head.accepts
        if not self._streams and not takes_json:
            return 406, "Not Acceptable: Client must accept application/json"
        if self._streams and not (takes_json and takes_events):
            return 406, "Not Acceptable: Client must accept both application/json and text/event-stream"
        if not head.is_json:
            return 415, "Unsupported Media Type: Content-Type must be application/json"
        return None

    def _opened(self, http: Request, params: Mapping[str, Any]) -> LegacySession | str:
        """A new session, or the reason why none is opened."""
        owner = principal_of(http.scope)
        if self._shared is None:
            return self._added(uuid.uuid4().hex, owner, http)
        session_id = self._shared.new_id(params, owner)
        session = self._added(session_id.text, owner, http, self._shared.home(session_id, http))
        if isinstance(session, LegacySession):
            self._shared.keep(session)
        return session

    def _added(
        self, name: str, owner: str | None, http: Request, home: Home | None = None
    ) -> LegacySession | str:
        """A new session in the table, or the reason why the table has no room for it."""
        peer = budgets.peer_of(http.scope.get("client"))
        refused = self.sessions.admit(peer, owner)
        if refused is not None:
            return refused
        session = LegacySession(
            name, owner, peer, self._answers, self._kept, streams=self._streams, home=home
        )
        self.sessions.add(session)
        return session

    async def _adopted(
        self, shared: SharedSessions, name: str, owner: str | None, http: Request
    ) -> str | None:
        """Continue a session of another replica, if its id names one; returns why that is impossible now."""
        try:
            session_id = await shared.opened(name, owner)
        except StoreError as fault:
            return str(fault)
        # Another request of the client may have opened it meanwhile.
        if session_id is None or name in self.sessions:
            return None
        session = self._added(name, owner, http, shared.home(session_id, http))
        if isinstance(session, str):
            return session
        await shared.adopt(session, session_id, http)
        return None

    async def _get(
        self, head: messages.Head, session: LegacySession | None, receive: Receive, send: Send
    ) -> None:
        """Open the standing stream of a session, or resume a stream."""
        if not head.accepts[1]:
            text = "Not Acceptable: Client must accept text/event-stream"
            return await messages.refuse(
                send, 406, json_rpc.INVALID_REQUEST, text, headers=_headers_of(session)
            )
        if session is None:
            return await _refuse_without_session(send)
        place = place_of(head.fields.get(messages.LAST_EVENT)) if session.resumes else None
        if place is None and session.standing.is_open:
            text = "Conflict: Only one SSE stream is allowed per session"
            return await messages.refuse(send, 409, json_rpc.INVALID_REQUEST, text, headers=session.headers)
        self.sessions.use(session)
        try:
            if self._shared is not None and place is not None and not session.has(place):
                if await self._shared.follow(session, place, send, session.headers):
                    return
            await session.follow(place, receive, send)
        finally:
            self.sessions.release(session)

    async def _delete(self, session: LegacySession | None, send: Send) -> None:
        if session is None:
            return await _refuse_without_session(send)
        self.sessions.end(session)
        if self._shared is not None:
            await self._shared.end(session)
        await messages.reply(send, 200, kind=messages.JSON, headers=session.headers)


def _headers_of(session: LegacySession | None) -> messages.Headers:
    return _NO_HEADERS if session is None else session.headers


async def _refuse_without_session(send: Send) -> None:
    await messages.refuse(send, 400, json_rpc.INVALID_REQUEST, "Bad Request: Missing session ID")
