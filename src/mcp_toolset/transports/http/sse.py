"""`EventDoor`: HTTP+SSE (2024-11-05): a client posts its messages; all that is for it goes on one stream.

That is a duplex connection: `EventDispatcher` is the dispatcher of pipes, and writes to the event stream. Its
answers go one after the other, so a client that does not read has them pile up. A result for which there is
no room in the budget of its address is replaced by an error; while many answers wait, no further message of
the client is taken. Other clients are not held back by that.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from urllib.parse import parse_qs, quote

import anyio
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_toolset.context.caller import principal_of
from mcp_toolset.context.incoming import Answers
from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Outbound,
    Params,
    Started,
)
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, MCPError, ProgressToken, RequestId
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.http.following import PING
from mcp_toolset.transports.http.headers import Head, Unread, read_body
from mcp_toolset.transports.http.limits import peer_of
from mcp_toolset.transports.http.post import PING_INTERVAL, kind_of_posted
from mcp_toolset.transports.http.replies import STREAM, reply
from mcp_toolset.transports.http.send_buffers import Unsent
from mcp_toolset.transports.http.session_table import shortened
from mcp_toolset.transports.line_dispatcher import LineDispatcher
from mcp_toolset.transports.pipes import HIGH_WATER, PipePair
from mcp_toolset.transports.requests import Incoming
from mcp_toolset.transports.serving import serve_connection

SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages/"

MANY: Final = 256
"""Answers that may wait for one client before nothing more of it is taken."""

_ENVELOPE: Final = 200
"""Bytes that any answer has at least."""

_log = logging.getLogger("mcp_toolset.http")


class EventStream:
    """The event stream of one client, as a dispatcher writes to it: the writing half of a `PipePair`.

    Attributes:
        fault: Nothing is read here, so that nothing of it fails.
        sent: Bytes that the client has taken.
    """

    fault: Exception | None = None

    def __init__(self, send: Send, unsent: Unsent, peer: str) -> None:
        """Write to a client at an address, of which `unsent` counts what it has not taken."""
        self.sent = 0
        self._send = send
        self._unsent = unsent
        self._peer = peer
        self._events: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._cut = False
        self._on_end: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> int:
        """Messages that the client has not taken."""
        return len(self._events)

    @property
    def has_room(self) -> bool:
        """Whether more may be sent without waiting."""
        return self._cut or self._size < HIGH_WATER

    async def room(self) -> None:
        """Wait until more may be sent, or nothing can be any more."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def few(self) -> None:
        """Wait until few messages wait."""
        while len(self._events) >= MANY and not self._cut:
            self._room.clear()
            await self._room.wait()

    def fits(self, size: int) -> str | None:
        """The reason for which a result of `size` bytes is dropped; `None` if there is room for it."""
        limit = self._unsent.limit(self._peer, size)
        return None if limit is None else self._unsent.refusal(self._peer, size, limit)

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Say the end by `on_end`; messages are taken from POSTs."""
        self._on_end = on_end

    def pause(self) -> None:
        """Nothing is read here."""

    def resume(self) -> None:
        """Nothing is read here."""

    def is_cut(self) -> bool:
        """Whether the client has left."""
        return self._cut

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a message as soon as the client takes it."""
        if not self._cut:
            self.write(b"".join((b"event: message\r\ndata: ", line, *rest, b"\r\n\r\n")))

    def write(self, event: bytes) -> None:
        """Send an event as soon as the client takes it; it counts until then."""
        size = max(len(event), _ENVELOPE)
        self._unsent.add(self._peer, size)
        self._size += size
        self._events.append((event, size))
        self._news.set()

    async def run(self) -> None:
        """Send what is written, one event after the other, and comments in silence."""
        while True:
            while self._events:
                event, _ = self._events[0]
                await self._part(event)
                if not self._cut:
                    self._forget_first()
            if self._cut:
                return
            self._news.clear()
            with anyio.move_on_after(PING_INTERVAL) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                await self._part(PING)

    async def _part(self, event: bytes) -> None:
        try:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            self.sent += len(event)
        except OSError:
            # So do servers say that the client has left (ASGI 2.4).
            self.end()

    def end(self) -> None:
        """Send nothing more, and end the connection."""
        if not self._cut:
            self._cut = True
            while self._events:
                self._forget_first()
            self._news.set()
            self._on_end()

    def _forget_first(self) -> None:
        _, size = self._events.popleft()
        self._size -= size
        self._unsent.give_back(self._peer, size)
        self._room.set()


class EventDispatcher(LineDispatcher):
    """The dispatcher of one client: what is posted is taken here, answers go on its event stream."""

    def __init__(self, stream: EventStream) -> None:
        """Speak by `stream`."""
        super().__init__(cast("PipePair", stream))
        self._make = self._posted
        self._one_per_id = False
        self._stream = stream
        self._http: Request | None = None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        """Take messages until the client is gone; a result for which there is no room is dropped at once."""
        within_budget = partial(self._within_budget, on_request)
        await super().run(within_budget, on_notify, on_notify_intercept, task_status=task_status)

    async def _within_budget(
        self, on_request: OnRequest, context: DispatchContext, method: str, params: Params
    ) -> dict[str, Any]:
        result = await on_request(context, method, params)
        refused = self._stream.fits(weight_of(result))
        if refused is None:
            return result
        # The error keeps this frame.
        del result
        raise MCPError(INTERNAL_ERROR, refused)

    def take(self, message: dict[str, Any], http: Request) -> None:
        """Take a message that came in a POST; it is handled in the context of that."""
        self._http = http
        self._take_message(message, 0)

    def _posted(
        self, dispatcher: Outbound, number: RequestId | None = None, token: ProgressToken | None = None
    ) -> Incoming:
        """What the handler of a message gets: it knows the POST."""
        return _Posted(dispatcher, number, token, self._http)


class _Posted(Incoming):
    """A message that came in a POST."""

    __slots__ = ("http",)

    def __init__(
        self,
        dispatcher: Outbound,
        number: RequestId | None,
        token: ProgressToken | None,
        http: Request | None,
    ) -> None:
        super().__init__(dispatcher, number, token)
        self.http = http


@dataclass(frozen=True, slots=True)
class _Open:
    stream: EventStream
    dispatcher: EventDispatcher
    owner: str | None


class EventDoor:
    """`/sse`, where clients open event streams, and `/messages/`, where they post to them."""

    def __init__(self, answers: Answers, unsent: Unsent) -> None:
        """Serve `answers`; `unsent` counts what clients have not taken."""
        self._answers = answers
        self._unsent = unsent
        self._clients: dict[str, _Open] = {}

    def end_streams(self) -> None:
        """End every stream, and its connection."""
        for client in list(self._clients.values()):
            client.stream.end()

    async def open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a client on an event stream until it leaves."""
        name = uuid.uuid4().hex
        stream = EventStream(send, self._unsent, peer_of(scope.get("client")))
        dispatcher = EventDispatcher(stream)
        self._clients[name] = _Open(stream, dispatcher, principal_of(scope))
        path = quote(scope.get("root_path", "").rstrip("/") + MESSAGES_PATH)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            stream.write(f"event: endpoint\r\ndata: {path}?session_id={name}\r\n\r\n".encode())
            async with anyio.create_task_group() as group:
                group.start_soon(stream.run)
                group.start_soon(_end_when_left, receive, stream)
                await serve_connection(self._answers, dispatcher)
                group.cancel_scope.cancel()
        finally:
            del self._clients[name]
            stream.end()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one message of a client."""
        if scope["method"] != "POST":
            return await reply(send, 405, headers=[(b"allow", b"POST")])
        head = Head(scope["headers"])
        body = Unread.TOO_BIG if head.is_too_big else await read_body(receive)
        if body is Unread.CLIENT_LEFT:
            return
        if body is Unread.TOO_BIG:
            return await reply(send, 413, b"Request body too large")
        if not head.begins_as_json:
            return await reply(send, 400, b"Invalid Content-Type header")
        client = self._addressed(scope)
        if isinstance(client, tuple):
            return await reply(send, *client)
        message = _message(body)
        if message is None:
            return await reply(send, 400, b"Could not parse message")
        await client.stream.few()
        client.dispatcher.take(message, Request(scope, receive))
        await reply(send, 202, b"Accepted")

    def _addressed(self, scope: Scope) -> _Open | tuple[int, bytes]:
        """The client that a message is from, by the session id in the query; or how it is refused."""
        given = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        named = given.get("session_id")
        if named is None:
            return 400, b"session_id is required"
        try:
            name = uuid.UUID(hex=named[-1]).hex
        except ValueError:
            _log.warning("refused a message of session %s, which is no id", in_log(shortened(named[-1])))
            return 400, b"Invalid session ID"
        client = self._clients.get(name)
        if client is None:
            _log.warning("refused a message of session %s, which is not open", shortened(name))
        elif client.owner != principal_of(scope):
            # It is answered as if the session did not exist.
            _log.warning("refused a message of session %s: another user has opened it", shortened(name))
            client = None
        return client or (404, b"Could not find session")


async def _end_when_left(receive: Receive, stream: EventStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


def _message(body: bytes) -> dict[str, Any] | None:
    """The message in a body, if it is one."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    kind = kind_of_posted(message)
    if kind == "notification":
        # Some clients write an id into it that is none.
        message.pop("id", None)
    return None if kind == "garbage" else message


def weight_of(value: object) -> int:
    """About how many bytes a JSON value has; its long texts are what counts."""
    size = _ENVELOPE
    left: list[object] = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            found = cast("dict[str, object]", item)
            size += sum(map(len, found))
            left.extend(found.values())
        elif isinstance(item, list | tuple):
            left.extend(cast("Iterable[object]", item))
        else:
            size += 8
    return size
