"""Bounds on what peers send and leave unread.

`PacedRequest` is one request of a client: the connection to an upstream server reads nothing while that
client has no room for a big answer. `UnreadResults` gives up results that a client does not take. `Allowance`
cuts a mounted server off that floods its connection with messages that answer nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, Protocol

import anyio

from mcp_toolset.protocol.eras import surely_parts
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId

BURST: Final = 64 * 1024 * 1024
"""Bytes that may come at once, and are refilled."""

PER_SECOND: Final = 4 * 1024 * 1024
"""Bytes that are refilled in a second."""

PER_LINE: Final = 64
PER_PIECE: Final = 256
PER_CHUNK: Final = 1024
PER_REQUEST: Final = 4 * 1024
PER_INTERIM: Final = 64 * 1024
"""Bytes that these count at least: a line; a message or a piece of a body; a small chunk, parsed in 10 µs;
a request of the server, which a POST answers; an interim response (1xx)."""


class FloodError(Exception):
    """A server sends more that answers nothing than it may."""


class Allowance:
    """What is left for one connection to a mounted server."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since = monotonic()

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            now = monotonic()
            self._left, self._since = min(BURST, self._left + (now - self._since) * PER_SECOND), now
            if self._left < 0:
                raise FloodError(
                    f"it floods the connection: over {BURST // 2**20} MiB of notifications, comments or tiny "
                    f"pieces at once, and over {PER_SECOND // 2**20} MiB a second; have it send less"
                )


BIG: Final = 256 * 1024
"""Bytes of an answer after which nothing more is read of its server until the result is on its way."""

ON_ITS_WAY: Final = 0.1
"""Seconds that a request may take for that: a tool may make many calls for one result."""

MAX_UNREAD: Final = 64 * 1024 * 1024
"""Bytes of results that may wait for a client that reads nothing, beside what its pipe holds."""

PATIENCE: Final = 10.0
"""Seconds in which a client must read something while more than that waits for it."""

_LOOK: Final = 0.05
"""Seconds between looks at whether the peer can still read."""


class Channel(Protocol):
    """A connection as its dispatcher drives it: a `PipePair`, or the event stream of an HTTP client."""

    fault: Exception | None  # what taking a message failed by, which has ended the connection
    sent: int  # bytes that the other side has taken

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a message, in parts perhaps; others may be about to follow."""

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Hand on what comes, and say the end."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool: ...

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Do a part of the reader's work; if it raises, the connection ends."""


async def end_when_cut(pipes: Channel, scope: anyio.CancelScope) -> None:
    # No event tells it on all systems.
    while not pipes.is_cut():  # noqa: ASYNC110
        await anyio.sleep(_LOOK)
    scope.cancel()


class PacedRequest:
    """One request of a client whose reading sets the pace."""

    __slots__ = ("_answered", "_over", "_pipes")

    def __init__(self, pipes: Channel) -> None:
        self._pipes = pipes
        self._over = False
        self._answered: asyncio.Event | None = None

    @property
    def has_room(self) -> bool:
        return self._pipes.has_room

    def end(self) -> None:
        self._over = True
        if self._answered is not None:
            self._answered.set()

    async def ready(self) -> None:
        """Wait until the client takes more, once the result of this request counts."""
        if not self._over:
            if self._answered is None:
                self._answered = asyncio.Event()
            with anyio.move_on_after(ON_ITS_WAY):
                await self._answered.wait()
        await self._pipes.room()


calling: Final[ContextVar[PacedRequest | None]] = ContextVar("mcp_toolset_calling", default=None)
"""The request that the task at hand works for; `None` where no client sets the pace."""

closing: Final[ContextVar[Callable[[], None] | None]] = ContextVar("mcp_toolset_closing", default=None)
"""Ends the response to the call at hand early, if its client can come back for the rest."""


class UnreadResults:
    """The results that wait for one client."""

    def __init__(self, pipes: Channel) -> None:
        self._pipes = pipes
        self.size = 0

    async def room(self, size: int) -> bool:
        """Wait until a result of `size` bytes may be sent; `False` says that it is given up."""
        self.size += size
        try:
            while not self._pipes.has_room:
                sent = self._pipes.sent
                with anyio.move_on_after(PATIENCE) as patience:
                    await self._pipes.room()
                if patience.cancelled_caught and self._pipes.sent == sent and self.size > MAX_UNREAD:
                    return False
            return True
        finally:
            self.size -= size

    async def first(self, number: RequestId | None, answer: list[bytes]) -> list[bytes]:
        """An answer once there is room for it, where the peer sets the pace; an error if it is given up."""
        size = sum(map(len, answer))
        return answer if await self.room(size) else surely_parts(number, None, given_up(size))


def given_up(size: int) -> ErrorData:
    return ErrorData(
        code=INTERNAL_ERROR,
        message=f"the call ran, but its result of {size} bytes was dropped: more than {MAX_UNREAD} bytes "
        f"wait for this client, which has read nothing for {PATIENCE:g} s; read the answers, or call fewer "
        "tools at once",
    )
