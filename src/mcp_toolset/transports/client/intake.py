"""`Intake`: the bytes of answers that are read of one upstream server over HTTP, and their budget.

Each answer has a connection of its own, so hundreds can be read at once. Within the budget they are.
Beyond it one body is read at a time, once the results before it are on their way to clients that set the
pace (`Caller`). The others wait in their connections, and the server finds these full. Deadlines of calls
pause only while a client has no room; a server that sends slowly, or stops, pauses none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from mcp_toolset.transports.backpressure import BIG, Caller, calling

MAX_INTAKE: Final = 8 * 1024 * 1024
"""Bytes of answers of one server that are read at once, and wait for clients; one body more is read."""

AT_ONCE: Final = 8 * 1024
"""Bytes of each body that wait for no turn: a connection has received so many anyway."""


class Intake:
    """What is being read of one server.

    Attributes:
        size: The bytes of it, and of what was read for clients that have no room yet.
        waiting: Bodies that are not read on for now.
        paced: Whether they wait for a client that has no room.
    """

    def __init__(self, limit: int = MAX_INTAKE) -> None:
        self._limit = limit
        self._turn = asyncio.Lock()
        self._read: deque[tuple[Caller, int]] = deque()
        self.size = self.waiting = 0
        self.paced = False

    def is_full(self, size: int) -> bool:
        """Whether there is no room for so many bytes more."""
        return self.size + size > self._limit

    async def turn(self, size: int) -> None:
        """Wait to be the one that may read beyond the budget, until clients have room for what was read."""
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

    def give_back(self, size: int, caller: Caller | None, *, turn: bool) -> None:
        """Say that a body was read: a big one counts until its client has room."""
        if turn:
            self._turn.release()
        if caller is not None and size >= BIG:
            self._read.append((caller, size))
        else:
            self.size -= size


class Meter:
    """Counts one body, for the request that the task at hand works for; of a stream, each event is one."""

    __slots__ = ("_caller", "_intake", "_size", "_turn")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._caller = calling.get()
        self._size = 0
        self._turn = False

    async def room(self, size: int) -> None:
        """Wait until so many bytes more may be read on, and count them."""
        if not self._turn and self._size + size > AT_ONCE and self._intake.is_full(size):
            await self._intake.turn(size)
            self._turn = True
        self._size += size
        self._intake.size += size

    def give_back(self) -> None:
        """Say that what was counted has been read as a whole, or is read no further."""
        size, turn = self._size, self._turn
        if size or turn:
            self._size, self._turn = 0, False
            self._intake.give_back(size, self._caller, turn=turn)
