"""`HttpLimits`, and the budgets of an application: turns of requests, bodies, and unsent answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import fields
from time import monotonic
from typing import Final, cast

from anyio.lowlevel import checkpoint
from starlette.types import Message, Receive, Scope, Send

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency import backoff as turns
from mcp_toolset.context.connection import principal_of
from mcp_toolset.errors import DefinitionError
from mcp_toolset.protocol.eras import Encoded
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, held_by
from mcp_toolset.transports.http.messages import Head, NoBody, header, read_body, refuse, reply

_MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one application; each is a positive number.

    Attributes:
        max_sessions: Legacy sessions that may be open; a further session ends the oldest idle session.
        max_sessions_per_peer: The same for one address.
        max_unread_bytes: Bytes of answers that clients have not read; an answer beyond the limit is dropped.
        max_unread_bytes_per_peer: The same for one address.
        max_header_lines: Header lines of one request.
        max_replay_bytes: Bytes of events that are kept so that legacy clients can resume a broken stream.
        max_replay_bytes_per_session: The same for one session.
    """

    max_sessions: int = 2000
    max_sessions_per_peer: int = 500
    max_unread_bytes: int = 256 * _MB
    max_unread_bytes_per_peer: int = 40 * _MB
    max_header_lines: int = 200
    max_replay_bytes: int = 64 * _MB
    max_replay_bytes_per_session: int = 16 * _MB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise DefinitionError(f"HttpLimits: {field.name} is a positive whole number, not {value!r}")


def peer_of(client: object) -> str:
    address = cast("Sequence[object]", client)
    return str(address[0]) if address else ""


BEGUN: Final = 16
"""The number of requests that begin in one turn of the event loop."""


class Beginnings:
    """The requests that begin in this turn of the event loop, and those that wait for a later turn.

    So a burst of requests leaves turns for other work. Half of the requests of a turn are those that have
    waited longest, half are the newest: a request after a burst does not wait for the whole burst.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._waiting = deque[asyncio.Future[None]]()

    async def turn(self) -> None:
        """Wait for a turn in which fewer than `BEGUN` requests have begun."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next)
        if self._begun < BEGUN:
            self._begun += 1
        else:
            self._waiting.append(waiter := asyncio.get_running_loop().create_future())
            await waiter

    def _next(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < BEGUN:
            waiter = self._waiting.pop() if self._begun % 2 else self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next)


LONG: Final = 4 * 1024
"""Bytes of a body above which the budget counts it."""

MAX_HELD: Final = 256 * 1024 * 1024
"""Bytes that the requests with long bodies may hold together, as `held_by` counts them."""

OWN_HELD: Final = MAX_HELD // 2
"""The same for one caller: a principal, or an address without a login."""

FULL: Final = "Too many long requests are being answered; try again later"


class Load:
    """The requests in flight: one budget for their bodies, and their turns.

    Reading a long body and checking its values can take half a second of one turn of the event loop. Without
    turns, several long bodies together would block every other request for as many half seconds.
    """

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._since: float | None = None

    def hold(self, body: bytes, scope: Scope) -> Hold | None:
        """Count the memory of a body for as long as the `Hold` lives; `None` if the budget has no room."""
        size = held_by(body)
        caller = principal_of(scope) or f"at {peer_of(scope.get('client'))}"
        if self._held[caller] + size > OWN_HELD or self._held.total() + size > MAX_HELD:
            return None
        self._held[caller] += size
        return Hold(self, size, caller)

    def give_back(self, size: int, caller: str) -> None:
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]

    async def turn(self) -> None:
        """Wait for a turn of the event loop in which long requests have not used up their time."""
        while self._since is not None and monotonic() - self._since > turns.TURN:
            await checkpoint()
        if self._since is None:
            self._since = monotonic()
            asyncio.get_running_loop().call_soon(self._end_turn)

    async def body(
        self, scope: Scope, head: Head, receive: Receive, send: Send, full: Callable[[], Awaitable[None]]
    ) -> tuple[bytes, Hold | None] | None:
        """The body of a request, and the hold of a long body; `None` if the request was refused."""
        body = NoBody.TOO_BIG if head.is_too_big else await read_body(receive)
        if body is NoBody.TOO_BIG:
            await reply(send, 413, b"Request body too large")
        if isinstance(body, NoBody):
            return None
        if len(body) <= LONG:
            return body, None
        hold = self.hold(body, scope)
        if hold is None:
            await full()
            return None
        await self.turn()
        return body, hold

    def _end_turn(self) -> None:
        self._since = None


class Hold:
    """The share of one message in a load, held for as long as this object lives."""

    __slots__ = ("__weakref__", "_caller", "_load", "_size")

    def __init__(self, load: Load, size: int, caller: str) -> None:
        self._load = load
        self._size = size
        self._caller = caller

    def __del__(self) -> None:
        self._load.give_back(self._size, self._caller)


SLICE: Final = 256 * 1024
"""Bytes that are sent at once; only larger bodies are counted."""

_log = logging.getLogger("mcp_toolset.wire")


WAY: Final = "mcp_toolset.way"
"""The key of a request's `BoundedSend` in its scope."""

PER_TURN: Final = 2 * _MB
"""Bytes of long answers after which no further one begins in a turn of the event loop."""


_MAX_WEIGHED: Final = 10_000
"""Values of a result that are weighed before it is encoded; encoding tells its exact size."""


class Unsent:
    """The budget of unsent answers, for each address and in all.

    Attributes:
        size: Bytes that clients have not read.
        written: Bytes of long answers that were written in this turn of the event loop.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._peers: dict[str, int] = {}
        self._warned: set[str] = set()
        self._turn = asyncio.Lock()
        self.size = self.written = 0

    async def turn(self) -> None:
        """Wait for a turn of the event loop in which at most `PER_TURN` bytes were written."""
        async with self._turn:
            while self.written > PER_TURN:
                await checkpoint()

    def wrote(self, size: int) -> None:
        """Count a long answer that was written."""
        if not self.written:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self.written += size

    def _end_turn(self) -> None:
        self.written = 0

    def refused(self, peer: str, result: object) -> str | None:
        """The reason why a result is dropped before it is encoded; `None` if there may be room."""
        if not self.size:
            return None
        size = weight_of(result, _MAX_WEIGHED)
        limit = self.limit(peer, size) if size > SLICE else None
        return None if limit is None else self.refusal(peer, size, limit)

    def take(self, peer: str, size: int) -> str | None:
        """Count a body, if there is room; else the limit that it exceeds."""
        limit = self.limit(peer, size)
        if limit is None:
            self.add(peer, size)
        return limit

    def limit(self, peer: str, size: int) -> str | None:
        """The name of the limit that a body exceeds, if any. A single body always has room."""
        held = self._peers.get(peer, 0)
        if held and held + size > self._limits.max_unread_bytes_per_peer:
            return "max_unread_bytes_per_peer"
        if self.size and self.size + size > self._limits.max_unread_bytes:
            return "max_unread_bytes"
        return None

    def add(self, peer: str, size: int) -> None:
        self._peers[peer] = self._peers.get(peer, 0) + size
        self.size += size

    def give_back(self, peer: str, size: int) -> None:
        left = self._peers[peer] - size
        self.size -= size
        if left:
            self._peers[peer] = left
        else:
            del self._peers[peer]
            self._warned.discard(peer)

    def refusal(self, peer: str, size: int, limit: str) -> str:
        """The error in place of an answer; logged once until the address has read everything."""
        text = (
            f"an answer of {size} bytes was dropped: {self._peers.get(peer, 0)} bytes wait for clients at "
            f"{peer} and {self.size} in all ({limit} is {getattr(self._limits, limit)}); read them, or make "
            "fewer requests at once"
        )
        if peer not in self._warned:
            self._warned.update((peer,) if peer in self._peers else ())
            _log.warning("%s", text)
        return text


class BoundedSend:
    """The response to one request, within the budget of unsent bytes."""

    __slots__ = ("_counts", "_dropped", "_head", "_peer", "_send", "unsent")

    def __init__(self, unsent: Unsent, peer: str, send: Send, *, counts: bool = True) -> None:
        self._counts = counts
        self.unsent = unsent
        self._peer = peer
        self._send = send
        self._head: Message | None = None
        self._dropped = False

    async def room(self, result: object, *, may_drop: bool) -> str | None:
        """Wait for a turn to write a result; the reason why it is dropped, if there is no room."""
        await self.unsent.turn()
        return self.unsent.refused(self._peer, result) if may_drop else None

    async def __call__(self, message: Message) -> None:
        if self._dropped:
            return
        if message["type"] == "http.response.start":
            if _is_big(message):
                # Held back, so that a refusal can still replace the answer.
                self._head = message
            else:
                await self._send(message)
            return
        body = message.get("body", b"")
        if len(body) > SLICE:
            await self._sliced(body, more=message.get("more_body", False))
            return
        await self._begin()
        await self._send(message)

    async def _begin(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)

    async def _sliced(self, body: bytes, *, more: bool) -> None:
        size = len(body)
        limit = self.unsent.take(self._peer, size) if self._counts else None
        if limit is not None:
            return await self._drop(self.unsent.refusal(self._peer, size, limit))
        try:
            await self._begin()
            for start in range(0, len(body), SLICE):
                part = body[start : start + SLICE]
                rest = more or start + SLICE < len(body)
                await self._send({"type": "http.response.body", "body": part, "more_body": rest})
        finally:
            # The whole body was in memory until now.
            if self._counts:
                self.unsent.give_back(self._peer, size)

    async def _drop(self, reason: str) -> None:
        self._dropped = True
        if self._head is None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await refuse(self._send, 503, INTERNAL_ERROR, reason)


def _is_big(head: Message) -> bool:
    size = header(head.get("headers", []), b"content-length")
    return size is not None and size.isdigit() and int(size) > SLICE


def weight_of(value: object, most: int | None = None) -> int:
    """A lower bound of the bytes of a JSON value, from at most `most` of its values."""
    size = seen = 0
    left: list[object] = [value]
    while left and seen != most:
        item = left.pop()
        seen += 1
        size += 1
        if type(item) is Encoded:
            size += len(item.json)
        elif isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            table = cast("dict[str, object]", item)
            size += sum(map(len, table))
            left.extend(table.values())
        elif isinstance(item, list | tuple):
            left.extend(cast("Iterable[object]", item))
    return size
