"""A monotonic clock of epoch seconds: setting the machine's time back does not prolong any grant."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since the epoch that never run backwards, even if the machine's clock is set back."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with the machine's time."""
        self._wall = wall
        self._steady = steady
        self._time, self._at = wall(), steady()

    def __call__(self) -> float:
        """The present time: the machine's, or the last reading plus the time since, if that is later."""
        at = self._steady()
        self._time = max(self._wall(), self._time + at - self._at)
        self._at = at
        return self._time
