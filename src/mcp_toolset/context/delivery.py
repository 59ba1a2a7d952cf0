"""`Delivery`: the notifications of one call on their way to its client, in order and before its result.

A call does not end before all have been sent that were read before its result. Where a result takes another
stream than a notification before it, the client is asked first whether it has read that one. A client that
takes none for `PATIENCE` seconds gets no more of them: its call is not held up for longer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
from pydantic_core import to_json

from mcp_toolset.concurrency.task_set import TaskScope

MAX_WAITING: Final = 16_384
MAX_BYTES: Final = 8 * 1024 * 1024
"""Notifications of one call that may wait for its client, and their length; the oldest give way.

An upstream may say all at once what its client is sent one after another.
"""

_FEW: Final = 64  # Notifications up to which their length is not looked at.
PATIENCE: Final = 5.0  # Seconds in which a client has to take one notification.
_TURN: Final = 1024  # Notifications that are sent before other work gets its turn.

_log = logging.getLogger("mcp_toolset.upstream")

Send = Callable[[Any], Awaitable[None]]


class Delivery:
    """Notifications of one call's upstream, until its client has them."""

    __slots__ = (
        *("_added", "_asked", "_bytes", "_left", "_moved", "_read", "_scope", "_stopped", "_waiting"),
        *("confirm", "held", "running"),
    )

    def __init__(self) -> None:
        self._waiting: deque[tuple[Send, Any, int]] = deque()
        self._bytes = 0
        self._added = self._left = self._read = 0
        self._asked: anyio.Event | None = None
        self._moved: anyio.Event | None = None
        self._scope = TaskScope()
        self._stopped = False
        # Returns when the client has read what has left so far; `None` where that is not needed.
        self.confirm: Callable[[], Awaitable[None]] | None = None
        self.held = False  # True if nothing is sent for now, as no request of the client waits for the call.
        self.running = False  # True if a task sends.

    def add(self, send: Send, message: Any) -> int:
        """Queue a message; returns how many must leave before a result."""
        if not self._stopped:
            size = 0 if len(self._waiting) < _FEW else len(to_json(message))
            self._added += 1
            self._bytes += size
            self._waiting.append((send, message, size))
            while len(self._waiting) > MAX_WAITING or self._bytes > MAX_BYTES:
                self._next()
                self._left += 1
        return self._added

    def _next(self) -> tuple[Send, Any]:
        send, message, size = self._waiting.popleft()
        self._bytes -= size
        return send, message

    async def run(self) -> None:
        try:
            with self._scope.begun():
                while self._waiting and not self.held:
                    await self._send_next()
        finally:
            self.running = False
            self._tell()

    async def _send_next(self) -> None:
        send, message = self._next()
        try:
            await send(message)
        # Whatever a client's connection raises, or a program's own context: the next one may arrive.
        except Exception:
            _log.exception("a notification did not reach the client of its call")
        self._left += 1
        self._tell()
        if not self._left % _TURN:
            await anyio.lowlevel.checkpoint()

    async def left(self, count: int) -> None:
        await self._until(lambda: self._left >= count)

    async def hold(self) -> None:
        await self.all_left()
        self.held = True
        await self._until(lambda: not self.running)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not (self._stopped or reached()):
            if self._moved is None:
                self._moved = anyio.Event()
            with anyio.move_on_after(PATIENCE) as patience:
                await self._moved.wait()
            if patience.cancelled_caught:
                self.stop()

    async def read(self, count: int) -> None:
        await self.left(count)
        while self.confirm is not None and self._read < count and not self._stopped:
            if self._asked is not None:
                await self._asked.wait()
                continue
            asked, left = anyio.Event(), self._left
            self._asked = asked
            try:
                await self.confirm()
                self._read = left
            finally:
                self._asked = None
                asked.set()

    async def all_left(self) -> None:
        await self.left(self._added)

    def stop(self) -> None:
        if self._waiting:
            _log.warning("%d notifications were dropped: the client does not read them", len(self._waiting))
        self._stopped = True
        self._waiting.clear()
        self._scope.cancel()
        self._tell()

    def _tell(self) -> None:
        if self._moved is not None:
            moved, self._moved = self._moved, None
            moved.set()
