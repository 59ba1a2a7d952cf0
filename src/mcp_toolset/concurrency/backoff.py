"""Waits: `Backoff` before a next attempt, and `Turn` of a busy task."""

from __future__ import annotations

from time import monotonic
from typing import Final

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
