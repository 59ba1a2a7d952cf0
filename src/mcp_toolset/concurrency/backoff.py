"""`Backoff`: exponential backoff, the wait before each next attempt; connections to servers use it."""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.5
LAST: Final = 30.0
"""Seconds of the shortest and the longest wait; each wait is twice the last one."""

STABLE_AFTER: Final = 10.0
"""Seconds that a connection must have lived for the waits to start again with the shortest."""


BRIEF: Final = 1.0
"""Seconds that a connection must have lived for a wait of at most half that time."""


class Backoff:
    """The waits between the attempts to restore one connection."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, held: float) -> float:
        """The seconds to wait after a connection that lived for `held` seconds was lost."""
        wait = FIRST if held >= STABLE_AFTER else self._next
        if held >= BRIEF:
            # So a connection that lives for seconds is up most of the time, however often it is lost.
            wait = min(wait, max(FIRST, held / 2))
        self._next = min(LAST, wait * 2)
        return wait
