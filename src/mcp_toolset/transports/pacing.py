"""Backpressure: results wait for a client that reads slowly, and answers of servers wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import anyio

from mcp_toolset.protocol.eras import surely_parts
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId
from mcp_toolset.transports.requests import Channel, PacedRequest, calling

BIG: Final = 256 * 1024
"""Bytes of a large answer. After one, its server is not read until the client has taken the result."""

MAX_UNREAD: Final = 64 * 1024 * 1024
"""Bytes of results that may wait for a client that reads nothing; the buffer of its pipe is not counted."""

TIMEOUT: Final = 10.0
"""Seconds in which a client must read something while more than `MAX_UNREAD` waits for it."""

_POLL: Final = 0.05
"""Seconds between checks that the peer can still read."""


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


MAX_INTAKE: Final = 8 * 1024 * 1024
"""Bytes of one server's answers that are being read or wait for clients; one body may exceed it."""

AT_ONCE: Final = 8 * 1024
"""Bytes of each body that wait for no turn: a connection buffers that many before it is read."""


class Intake:
    """The budget of data that is read from one server.

    Attributes:
        size: Bytes that are being read, or that were read for clients without room.
        waiting: The number of bodies that wait for a turn.
        paced: True while reading waits for a client.
    """

    def __init__(self, limit: int = MAX_INTAKE) -> None:
        self._limit = limit
        self._turn = asyncio.Lock()
        self._read: deque[tuple[PacedRequest, int]] = deque()
        self.size = self.waiting = 0
        self.paced = False

    def is_full(self, size: int) -> bool:
        return self.size + size > self._limit

    async def turn(self, size: int) -> None:
        """Wait for the one turn to read beyond the budget, and for clients to take what was read."""
        self.waiting += 1
        try:
            await self._take_turn(size)
        finally:
            self.waiting -= 1

    async def _take_turn(self, size: int) -> None:
        await self._turn.acquire()
        try:
            while self._read and self.is_full(size):
                caller, held = self._read[0]
                self.paced = True
                await caller.ready()
                self._read.popleft()
                self.size -= held
        except BaseException:
            self._turn.release()
            raise
        finally:
            self.paced = False

    def give_back(self, size: int, caller: PacedRequest | None, *, turn: bool) -> None:
        """End the reading of a body; a big one counts until its client has room."""
        if turn:
            self._turn.release()
        if caller is not None and size >= BIG:
            self._read.append((caller, size))
        else:
            self.size -= size


class Meter:
    """Counts the bytes of one body, or of each event of a stream, for the request of the current task."""

    __slots__ = ("_caller", "_intake", "_size", "_turn")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._caller = calling.get()
        self._size = 0
        self._turn = False

    async def room(self, size: int) -> None:
        if not self._turn and self._size + size > AT_ONCE and self._intake.is_full(size):
            await self._intake.turn(size)
            self._turn = True
        self._size += size
        self._intake.size += size

    def give_back(self) -> None:
        size, turn = self._size, self._turn
        if size or turn:
            self._size, self._turn = 0, False
            self._intake.give_back(size, self._caller, turn=turn)
