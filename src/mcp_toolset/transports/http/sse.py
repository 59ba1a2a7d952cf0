"""`EventDoor`: HTTP+SSE (2024-11-05): a client posts its messages, and gets the server's on one event stream.

The posts and the stream together are a duplex connection, which `EventDispatcher` serves.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, quote
from weakref import ref

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_toolset._records import dataclass
from mcp_toolset.context.connection import HOLD, Answers, principal_of
from mcp_toolset.errors import CallError, StoreError
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.http import budgets, messages
from mcp_toolset.transports.http.arrival import NoteForeign
from mcp_toolset.transports.http.post import PING, PING_INTERVAL, kind_of_posted
from mcp_toolset.transports.http.sessions import SessionTable, shortened
from mcp_toolset.transports.line_dispatcher import HIGH_WATER, LineDispatcher
from mcp_toolset.transports.requests import Incoming
from mcp_toolset.transports.serve_connection import serve_connection

if TYPE_CHECKING:
    from mcp_toolset.shared.state import Replicas, SharedState

MANY: Final = 256
"""Answers that may wait to be sent to one client; if more wait, its next messages have to wait too."""

_ENVELOPE: Final = 200
"""Bytes that an answer counts for at least."""

_wire_log = logging.getLogger("mcp_toolset.wire")


class EventStream:
    """The event stream of one client; a `Channel`, to which a dispatcher writes."""

    def __init__(self, send: Send, unsent: budgets.Unsent, peer: str) -> None:
        self.fault: Exception | None = None
        self.sent = 0
        self._send = send
        self._unsent = unsent
        self._peer = peer
        self._events: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._is_cut = False
        self._on_end: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> int:
        return len(self._events)

    @property
    def has_room(self) -> bool:
        return not self._is_cut and self._size < HIGH_WATER

    async def room(self) -> None:
        """Wait until more may be sent; after the end, return after a checkpoint."""
        if self._is_cut:
            await anyio.lowlevel.checkpoint()
        while not (self.has_room or self._is_cut):
            self._room.clear()
            await self._room.wait()

    async def few(self) -> None:
        """Wait until fewer than `MANY` answers wait for the client."""
        while len(self._events) >= MANY and not self._is_cut:
            self._room.clear()
            await self._room.wait()

    async def fits(self, size: int) -> str | None:
        """Wait for a turn to write a result of `size` bytes; returns why it must be dropped, else `None`."""
        if self._unsent.written:
            await self._unsent.turn()
        limit = self._unsent.limit(self._peer, size)
        if limit is not None:
            return self._unsent.refusal(self._peer, size, limit)
        if size > budgets.SLICE:
            self._unsent.wrote(size)
        return None

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool:
        return self._is_cut

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work`, and end the stream if it fails."""
        try:
            work(*arguments)
        # After any error it is unknown how much was read, so the connection cannot be used any more.
        except Exception as raised:
            _wire_log.error("a connection was closed, because handling a message failed", exc_info=raised)
            self.fault = raised
            self.end()

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        if not self._is_cut:
            self.write(b"".join((b"event: message\r\ndata: ", line, *rest, b"\r\n\r\n")))

    def write(self, event: bytes) -> None:
        """Queue an event; it counts as unsent until the client has taken it."""
        size = max(len(event), _ENVELOPE)
        self._unsent.add(self._peer, size)
        self._size += size
        self._events.append((event, size))
        self._news.set()

    async def run(self) -> None:
        """Send the queued events, and pings in between, until the stream ends."""
        while True:
            while self._events:
                event, _ = self._events[0]
                await self._send_part(event)
                if not self._is_cut:
                    self._forget_first()
            if self._is_cut:
                return
            self._news.clear()
            with anyio.move_on_after(PING_INTERVAL) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                await self._send_part(PING)

    async def _send_part(self, event: bytes) -> None:
        try:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            self.sent += len(event)
        except OSError:
            # An ASGI server raises it when the client has left (ASGI 2.4).
            self.end()

    def end(self) -> None:
        """End the stream, and drop its unsent events."""
        if not self._is_cut:
            self._is_cut = True
            while self._events:
                self._forget_first()
            self._news.set()
            self._room.set()
            self._on_end()

    def _forget_first(self) -> None:
        _, size = self._events.popleft()
        self._size -= size
        self._unsent.give_back(self._peer, size)
        self._room.set()


class EventDispatcher(LineDispatcher):
    """The dispatcher of one client: takes posted messages, and answers on the client's event stream."""

    def __init__(self, stream: EventStream) -> None:
        super().__init__(stream)
        self._make = self._posted
        self._one_per_id = False
        self._stream = stream
        self._http: Request | None = None
        self._taken: budgets.Hold | None = None

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
    ) -> None:
        """Take messages until the client disconnects; an error replaces a result that has no room."""
        within_budget = partial(self._within_budget, on_request)
        await super().run(within_budget, on_notify, on_notify_intercept, task_status=task_status)

    async def _within_budget(
        self,
        on_request: dispatch.OnRequest,
        context: dispatch.DispatchContext,
        method: str,
        params: dispatch.Params,
    ) -> dict[str, Any]:
        result = await on_request(context, method, params)
        refused = await self._stream.fits(_ENVELOPE + budgets.weight_of(result))
        if refused is None:
            return result
        # The traceback of the error keeps this frame, and would keep the result.
        del result
        raise json_rpc.MCPError(json_rpc.INTERNAL_ERROR, refused)

    def take(self, message: dict[str, Any], http: Request, hold: budgets.Hold | None = None) -> None:
        """Handle a posted message; `hold` reserves memory for its body until the answer."""
        self._http, self._taken = http, hold
        self._stream.guarded(self._take_message, message, 0)
        self._taken = None

    def _posted(
        self,
        dispatcher: dispatch.Outbound,
        number: json_rpc.RequestId | None = None,
        token: json_rpc.ProgressToken | None = None,
    ) -> Incoming:
        return _PostedMessage(dispatcher, number, token, self._http, None if number is None else self._taken)


class _PostedMessage(Incoming):
    """A message that came in a POST."""

    __slots__ = ("_hold", "http")

    def __init__(
        self,
        dispatcher: dispatch.Outbound,
        number: json_rpc.RequestId | None,
        token: json_rpc.ProgressToken | None,
        http: Request | None,
        hold: budgets.Hold | None,
    ) -> None:
        super().__init__(dispatcher, number, token)
        self.http = http
        self._hold = hold

    def close(self) -> None:
        super().close()
        self._hold = None


SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages/"

WITHIN: Final = 10.0
"""Seconds in which another replica has to take a message."""

_NO_MESSAGE: Final = "Could not parse message"
_NO_ID: Final = "Invalid request: the id of a request is a text or a whole number"
_NOTES: Final = "notifications/"
_POSTED: Final = "sse.posted"
_log = logging.getLogger("mcp_toolset.http")


@dataclass(slots=True)
class _Client:
    """A session, which lasts as long as its stream is open."""

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
        limits: budgets.HttpLimits,
        load: budgets.Load,
        unsent: budgets.Unsent,
        shared: SharedState | None = None,
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
        """End the streams of all clients."""
        for client in self.sessions.all():
            client.end()

    async def open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for an event stream."""
        self.sessions.require_running()
        if scope["method"] not in ("GET", "HEAD"):
            return await messages.reply(send, 405, headers=[(b"allow", b"GET, HEAD")])
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": messages.STREAM})
            return await send({"type": "http.response.body", "body": b""})
        owner, peer = principal_of(scope), budgets.peer_of(scope.get("client"))
        refused = self.sessions.admit(peer, owner)
        if refused is not None:
            return await messages.reply(send, 503, refused.encode())
        name, stream = uuid.uuid4().hex, EventStream(send, self._unsent, peer)
        dispatcher = EventDispatcher(stream)
        client = _Client(name, owner, peer, stream, dispatcher, Request(scope, receive))
        self.sessions.add(client)
        self.sessions.use(client)
        path = quote(scope.get("root_path", "").rstrip("/") + MESSAGES_PATH)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": messages.STREAM})
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
        """Answer a POST with one message."""
        if scope["method"] != "POST":
            return await messages.reply(send, 405, headers=[(b"allow", b"POST")])
        head = messages.Head(scope["headers"])
        taken = await self._load.body(
            scope, head, receive, send, partial(messages.reply, send, 503, budgets.FULL.encode())
        )
        if taken is None:
            return
        if not head.begins_as_json:
            return await messages.reply(send, 400, b"Invalid Content-Type header")
        await self._take(scope, *taken, receive, send)

    async def _take(
        self, scope: Scope, body: bytes, hold: budgets.Hold | None, receive: Receive, send: Send
    ) -> None:
        """Find the client of a posted message, here or in another replica, and pass the message on."""
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
            return await messages.refuse(send, 400, json_rpc.INVALID_REQUEST, _NO_ID)
        if isinstance(message, str):
            return await messages.reply(send, 400, message.encode())
        await client.stream.few()
        if client.stream.is_cut():
            return await messages.reply(send, 404, b"Could not find session")
        # Starlette has added the path of the route to the root.
        root = scope.get("root_path", "").removesuffix(MESSAGES_PATH.rstrip("/"))
        known = {**scope, "root_path": root, HOLD: None if hold is None else ref(hold)}
        client.dispatcher.take(message, Request(known, receive), hold)
        await messages.reply(send, 202, b"Accepted")

    async def _replied(
        self, send: Send, scope: Scope, given: Mapping[str, list[str]], answer: tuple[int, bytes]
    ) -> None:
        """Send a status and text; note a session that the sender does not have."""
        if answer[0] == 404:
            self._note_foreign(scope, given["session_id"][-1])
        await messages.reply(send, *answer)

    async def _passed_on(
        self,
        replicas: Replicas,
        replica: str,
        given: Mapping[str, list[str]],
        message: dict[str, Any],
        scope: Scope,
    ) -> tuple[int, bytes]:
        """Pass a message to the replica that holds the stream; returns the answer's status and text."""
        asked = {"query": given, "owner": principal_of(scope), "message": message}
        try:
            answer = await replicas.ask(replica, _POSTED, asked, within=WITHIN)
        except (CallError, StoreError) as fault:
            _log.warning("a message for another replica was refused: %s", fault)
            return 404, b"Could not find session"
        return answer["status"], answer["text"].encode()

    async def _take_posted(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a message that was posted to another replica."""
        client = self._addressed(params["query"], params["owner"])
        if isinstance(client, tuple):
            return {"status": client[0], "text": client[1].decode()}
        await client.stream.few()
        if client.stream.is_cut():
            return {"status": 404, "text": "Could not find session"}
        client.dispatcher.take(dict(params["message"]), client.http)
        return {"status": 202, "text": "Accepted"}

    def _addressed(self, given: Mapping[str, list[str]], owner: str | None) -> _Client | tuple[int, bytes]:
        """The client of a message, by the session id in the query; or the status and text of a refusal."""
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
    """End a stream when its client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


def _message(body: bytes) -> dict[str, Any] | str:
    """The message in a body, or the reason why there is none."""
    try:
        message = json_rpc.json_in(body, json_rpc.MAX_ASKED)
    except json_rpc.HeavyError as heavy:
        return f"{_NO_MESSAGE}: {heavy}"
    except ValueError:
        return _NO_MESSAGE
    kind = kind_of_posted(message)
    if kind == "notification" and "id" in message:
        if not message["method"].startswith(_NOTES):
            return _NO_ID
        # Some clients write an invalid id into a notification.
        del message["id"]
    return _NO_MESSAGE if kind == "garbage" else message
