"""`Backoff`: how long to wait before the next attempt, growing to a cap."""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.5
LAST: Final = 30.0
"""Seconds of the shortest and the longest wait; each is twice the one before."""

STABLE_AFTER: Final = 10.0
"""Seconds that something must have held before its loss starts the waits anew."""


BRIEF: Final = 1.0
"""Seconds that something must have held for a wait to be no longer than half of that time."""


class Backoff:
    """The waits between attempts at one thing."""

    def __init__(self) -> None:
        """Start with the shortest wait."""
        self._next = FIRST

    def after(self, held: float) -> float:
        """The seconds to wait now that it was lost, after having held for `held` seconds."""
        wait = FIRST if held >= STABLE_AFTER else self._next
        if held >= BRIEF:
            # What lives for seconds is there for most of the time, however often it ends.
            wait = min(wait, max(FIRST, held / 2))
        self._next = min(LAST, wait * 2)
        return wait
