"""`EventStream`: the one stream of an HTTP+SSE client; `EventDispatcher` reads POSTs and writes to it.

Answers go one after the other, so a client that does not read has them pile up. A result for which there is
no room in the budget of its address is replaced by an error; while many answers wait, no further message of
the client is taken. Other clients are not held back by that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.types import Send

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
from mcp_toolset.transports.http.kept_events import PING
from mcp_toolset.transports.http.limits import SLICE, Hold, Unsent, weight_of
from mcp_toolset.transports.http.post import PING_INTERVAL
from mcp_toolset.transports.line_dispatcher import LineDispatcher
from mcp_toolset.transports.pipes import HIGH_WATER
from mcp_toolset.transports.requests import Incoming

MANY: Final = 256
"""Answers that may wait for one client before nothing more of it is taken."""

_ENVELOPE: Final = 200
"""Bytes that any answer has at least."""

_log = logging.getLogger("mcp_toolset.wire")


class EventStream:
    """The event stream of one client, as a dispatcher writes to it: a `Channel`."""

    def __init__(self, send: Send, unsent: Unsent, peer: str) -> None:
        self.fault: Exception | None = None
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
        return len(self._events)

    @property
    def has_room(self) -> bool:
        return not self._cut and self._size < HIGH_WATER

    async def room(self) -> None:
        """Wait until more may be sent; a turn once nothing can be, in which who sends on is cancelled."""
        if self._cut:
            await anyio.lowlevel.checkpoint()
        while not (self.has_room or self._cut):
            self._room.clear()
            await self._room.wait()

    async def few(self) -> None:
        while len(self._events) >= MANY and not self._cut:
            self._room.clear()
            await self._room.wait()

    async def fits(self, size: int) -> str | None:
        """Wait for a turn to write a result of `size` bytes; why it is dropped, if it has no room."""
        if self._unsent.written:
            await self._unsent.turn()
        limit = self._unsent.limit(self._peer, size)
        if limit is not None:
            return self._unsent.refusal(self._peer, size, limit)
        if size > SLICE:
            self._unsent.wrote(size)
        return None

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool:
        return self._cut

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        try:
            work(*what)
        # Whatever it is: what was taken of the connection is unknown, so that it cannot be used any more.
        except Exception as raised:
            _log.error("a connection was closed, because handling a message failed", exc_info=raised)
            self.fault = raised
            self.end()

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
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
        if not self._cut:
            self._cut = True
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
    """The dispatcher of one client: what is posted is taken here, answers go on its event stream."""

    def __init__(self, stream: EventStream) -> None:
        super().__init__(stream)
        self._make = self._posted
        self._one_per_id = False
        self._stream = stream
        self._http: Request | None = None
        self._taken: Hold | None = None

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
        refused = await self._stream.fits(_ENVELOPE + weight_of(result))
        if refused is None:
            return result
        # The error keeps this frame.
        del result
        raise MCPError(INTERNAL_ERROR, refused)

    def take(self, message: dict[str, Any], http: Request, hold: Hold | None = None) -> None:
        self._http, self._taken = http, hold
        self._stream.guarded(self._take_message, message, 0)
        self._taken = None

    def _posted(
        self, dispatcher: Outbound, number: RequestId | None = None, token: ProgressToken | None = None
    ) -> Incoming:
        return _Posted(dispatcher, number, token, self._http, None if number is None else self._taken)


class _Posted(Incoming):
    """A message that came in a POST."""

    __slots__ = ("_hold", "http")

    def __init__(
        self,
        dispatcher: Outbound,
        number: RequestId | None,
        token: ProgressToken | None,
        http: Request | None,
        hold: Hold | None,
    ) -> None:
        super().__init__(dispatcher, number, token)
        self.http = http
        self._hold = hold

    def close(self) -> None:
        super().close()
        self._hold = None
