"""Backpressure: results wait for a client that reads slowly, and answers of servers wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from mcp_toolset.protocol.eras import surely_parts
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId

BIG: Final = 256 * 1024
"""Bytes of a large answer. After one, its server is not read until the client has taken the result."""

MAX_UNREAD: Final = 64 * 1024 * 1024
"""Bytes of results that may wait for a client that reads nothing; the buffer of its pipe is not counted."""

TIMEOUT: Final = 10.0
"""Seconds in which a client must read something while more than `MAX_UNREAD` waits for it."""

_POLL: Final = 0.05
"""Seconds between checks that the peer can still read."""


class Channel(Protocol):
    """A connection as its dispatcher drives it: a `PipePair`, or the event stream of an HTTP client."""

    fault: Exception | None  # the error of a message that ended the connection
    sent: int  # bytes that the other side has taken

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write_line(self, line: bytes, *rest: bytes, more: bool = False) -> None:
        """Send a message, given in parts; `more` says that another message follows at once."""

    def start(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Pass received bytes to `on_bytes`, and report the end of the stream."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def is_cut(self) -> bool: ...

    def guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Run `work`, which handles received bytes; if it raises, the connection ends."""


async def end_when_cut(pipes: Channel, scope: anyio.CancelScope) -> None:
    """Cancel `scope` once the peer cannot read any more."""
    # Not every system has an event for this.
    while not pipes.is_cut():  # noqa: ASYNC110
        await anyio.sleep(_POLL)
    scope.cancel()


class UnreadResults:
    """The results that wait for one client."""

    def __init__(self, pipes: Channel) -> None:
        self._pipes = pipes
        self.size = 0

    async def room(self, size: int) -> bool:
        """Wait until a result of `size` bytes may be sent; `False` if it has to be dropped."""
        self.size += size
        try:
            while not self._pipes.has_room:
                sent = self._pipes.sent
                with anyio.move_on_after(TIMEOUT) as waiting:
                    await self._pipes.room()
                if waiting.cancelled_caught and self._pipes.sent == sent and self.size > MAX_UNREAD:
                    return False
            return True
        finally:
            self.size -= size

    async def with_room(self, number: RequestId | None, answer: list[bytes]) -> list[bytes]:
        """The lines of an answer, once there is room for it; those of an error if it has to be dropped."""
        size = sum(map(len, answer))
        return answer if await self.room(size) else surely_parts(number, None, dropped_result(size))


def dropped_result(size: int) -> ErrorData:
    return ErrorData(
        code=INTERNAL_ERROR,
        message=f"the call ran, but its result of {size} bytes was dropped: more than {MAX_UNREAD} bytes "
        f"wait for this client, which has read nothing for {TIMEOUT:g} s; read the answers, or call fewer "
        "tools at once",
    )
