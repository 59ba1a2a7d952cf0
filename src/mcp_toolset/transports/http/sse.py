"""`EventDoor`: HTTP+SSE (2024-11-05): a client posts its messages; all that is for it goes on one stream.

Both together are a duplex connection, which `EventDispatcher` serves.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast
from urllib.parse import parse_qs, quote
from weakref import ref

import anyio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_toolset._records import dataclass
from mcp_toolset.context.connection import HOLD, Answers, principal_of
from mcp_toolset.context.shared import OtherReplicas, Shared
from mcp_toolset.errors import CallError, StoreError
from mcp_toolset.protocol.codec import MAX_ASKED, HeavyError, json_in
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.http.authentication import NoteForeign
from mcp_toolset.transports.http.event_stream import EventDispatcher, EventStream
from mcp_toolset.transports.http.limits import FULL, Hold, HttpLimits, Load, Unsent, peer_of
from mcp_toolset.transports.http.messages import STREAM, Head, refuse, reply
from mcp_toolset.transports.http.post import kind_of_posted
from mcp_toolset.transports.http.sessions import SessionTable, shortened
from mcp_toolset.transports.requests import serve_connection

SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages/"

WITHIN: Final = 10.0
"""Seconds that another replica has to take a message."""

_NO_MESSAGE: Final = "Could not parse message"
_NO_ID: Final = "Invalid request: the id of a request is a text or a whole number"
_NOTES: Final = "notifications/"
_POSTED: Final = "sse.posted"
_log = logging.getLogger("mcp_toolset.http")


@dataclass(slots=True)
class _Client:
    """A session: it is in use for as long as its stream is open, and ends with that."""

    name: str
    owner: str | None
    peer: str
    stream: EventStream
    dispatcher: EventDispatcher
    http: Request
    users: int = 0
    is_busy: bool = True

    def end(self) -> None:
        self.stream.end()

    async def aclose(self) -> None: ...


class EventDoor:
    """`/sse`, where clients open event streams, and `/messages/`, where they post to them."""

    def __init__(
        self,
        answers: Answers,
        limits: HttpLimits,
        load: Load,
        unsent: Unsent,
        shared: Shared | None = None,
        *,
        note_foreign: NoteForeign,
    ) -> None:
        self._note_foreign = note_foreign
        self.sessions: SessionTable[_Client] = SessionTable(limits)
        self._answers = answers
        self._load = load
        self._unsent = unsent
        self._replicas = None if shared is None else shared.replicas
        if shared is not None:
            shared.replicas.serve(_POSTED, self._take_posted)

    def end_streams(self) -> None:
        for client in self.sessions.all():
            client.end()

    async def open(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.sessions.require_running()
        if scope["method"] != "GET":
            # The route takes HEAD as well, which wants the head alone.
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            return await send({"type": "http.response.body", "body": b""})
        owner, peer = principal_of(scope), peer_of(scope.get("client"))
        refused = self.sessions.admit(peer, owner)
        if refused is not None:
            return await reply(send, 503, refused.encode())
        name, stream = uuid.uuid4().hex, EventStream(send, self._unsent, peer)
        dispatcher = EventDispatcher(stream)
        client = _Client(name, owner, peer, stream, dispatcher, Request(scope, receive))
        self.sessions.add(client)
        self.sessions.use(client)
        path = quote(scope.get("root_path", "").rstrip("/") + MESSAGES_PATH)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            at = "" if self._replicas is None else f"&replica={self._replicas.own}"
            stream.write(f"event: endpoint\r\ndata: {path}?session_id={name}{at}\r\n\r\n".encode())
            async with anyio.create_task_group() as group:
                group.start_soon(stream.run)
                group.start_soon(_end_when_left, receive, stream)
                await serve_connection(self._answers, dispatcher)
                group.cancel_scope.cancel()
        finally:
            self.sessions.end(client)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            return await reply(send, 405, headers=[(b"allow", b"POST")])
        head = Head(scope["headers"])
        taken = await self._load.body(scope, head, receive, send, partial(reply, send, 503, FULL.encode()))
        if taken is None:
            return
        if not head.begins_as_json:
            return await reply(send, 400, b"Invalid Content-Type header")
        await self._take(scope, *taken, receive, send)

    async def _take(self, scope: Scope, body: bytes, hold: Hold | None, receive: Receive, send: Send) -> None:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        message = _message(body)
        replica = given.get("replica", [""])[-1]
        replicas = None if isinstance(message, str) else self._replicas
        if replicas is not None and replica not in ("", replicas.own):
            passed_on = await self._passed_on(
                replicas, replica, given, cast("dict[str, Any]", message), scope
            )
            return await self._replied(send, scope, given, passed_on)
        client = self._addressed(given, principal_of(scope))
        if isinstance(client, tuple):
            return await self._replied(send, scope, given, client)
        if message is _NO_ID:
            return await refuse(send, 400, INVALID_REQUEST, _NO_ID)
        if isinstance(message, str):
            return await reply(send, 400, message.encode())
        await client.stream.few()
        if client.stream.is_cut():
            return await reply(send, 404, b"Could not find session")
        # The route has made its own path a part of the root.
        root = scope.get("root_path", "").removesuffix(MESSAGES_PATH.rstrip("/"))
        known = {**scope, "root_path": root, HOLD: None if hold is None else ref(hold)}
        client.dispatcher.take(message, Request(known, receive), hold)
        await reply(send, 202, b"Accepted")

    async def _replied(
        self, send: Send, scope: Scope, given: Mapping[str, list[str]], answer: tuple[int, bytes]
    ) -> None:
        if answer[0] == 404:
            self._note_foreign(scope, given["session_id"][-1])
        await reply(send, *answer)

    async def _passed_on(
        self,
        replicas: OtherReplicas,
        replica: str,
        given: Mapping[str, list[str]],
        message: dict[str, Any],
        scope: Scope,
    ) -> tuple[int, bytes]:
        """Have the replica that holds the stream take a message; the status and the text of the answer."""
        asked = {"query": given, "owner": principal_of(scope), "message": message}
        try:
            told = await replicas.ask(replica, _POSTED, asked, within=WITHIN)
        except (CallError, StoreError) as fault:
            _log.warning("a message for another replica was refused: %s", fault)
            return 404, b"Could not find session"
        return told["status"], told["text"].encode()

    async def _take_posted(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        client = self._addressed(params["query"], params["owner"])
        if isinstance(client, tuple):
            return {"status": client[0], "text": client[1].decode()}
        await client.stream.few()
        if client.stream.is_cut():
            return {"status": 404, "text": "Could not find session"}
        client.dispatcher.take(dict(params["message"]), client.http)
        return {"status": 202, "text": "Accepted"}

    def _addressed(self, given: Mapping[str, list[str]], owner: str | None) -> _Client | tuple[int, bytes]:
        """The client that a message is from, by the session id in the query; or how it is refused."""
        named = given.get("session_id")
        if named is None:
            return 400, b"session_id is required"
        try:
            name = uuid.UUID(hex=named[-1]).hex
        except ValueError:
            _log.warning("refused a message of session %s, which is no id", in_log(shortened(named[-1])))
            return 400, b"Invalid session ID"
        client = self.sessions.find(name, owner)
        if client is None:
            _log.warning("refused a message of session %s, which is not open for its sender", shortened(name))
        return client or (404, b"Could not find session")


async def _end_when_left(receive: Receive, stream: EventStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


def _message(body: bytes) -> dict[str, Any] | str:
    """The message in a body, or why there is none."""
    try:
        message = json_in(body, MAX_ASKED)
    except HeavyError as heavy:
        return f"{_NO_MESSAGE}: {heavy}"
    except ValueError:
        return _NO_MESSAGE
    kind = kind_of_posted(message)
    if kind == "notification" and "id" in message:
        if not message["method"].startswith(_NOTES):
            return _NO_ID
        # Some clients write an id into it that is none.
        del message["id"]
    return _NO_MESSAGE if kind == "garbage" else message
