"""Waits: `Backoff` before a next attempt, `Turn` of a busy task, `Drain` of the requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

FIRST: Final = 0.5
LAST: Final = 30.0  # Seconds of the shortest and the longest wait; each wait is twice the last one.
STABLE_AFTER: Final = 10.0  # Seconds of a connection after which waits start again with `FIRST`.


BRIEF: Final = 1.0  # Seconds that a connection must have lived for a wait of at most half that time.


class Backoff:
    """The waits between the attempts to restore one connection."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, held: float) -> float:
        wait = FIRST if held >= STABLE_AFTER else self._next
        if held >= BRIEF:
            # So a connection that lives for seconds is up most of the time, however often it is lost.
            wait = min(wait, max(FIRST, held / 2))
        self._next = min(LAST, wait * 2)
        return wait


TURN: Final = 0.001  # Seconds that one reader works before others have their turn.


class Turn:
    """The time that one task has worked since it last gave way."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = monotonic() + TURN

    @property
    def is_over(self) -> bool:
        return monotonic() > self._until

    async def pause(self) -> None:
        if monotonic() > self._until:
            await checkpoint()
            self._until = monotonic() + TURN


class Drain:
    """The end of one run, and the requests in flight that it waits for."""

    def __init__(self) -> None:
        self.working = 0
        self._scope: anyio.CancelScope | None = None
        self._idle: anyio.Event | None = None
        self._is_closing = False

    @contextmanager
    def open(self) -> Generator[None]:
        with anyio.CancelScope() as self._scope:
            if self._is_closing:
                self._scope.cancel()
            try:
                yield
            finally:
                self._scope, self._is_closing = None, False

    def request_ended(self) -> None:
        if self._idle is not None:
            self._idle.set()

    async def close(self, within: float, is_busy: Callable[[], bool]) -> None:
        """Wait until nothing is in flight, requests or other work, at most `within` seconds; then end."""
        try:
            with anyio.move_on_after(within):
                while self.working or is_busy():
                    self._idle = anyio.Event()
                    await self._idle.wait()
        finally:
            self._is_closing = True
            if self._scope is not None:
                self._scope.cancel()
