"""A clock for what expires: setting the machine's time back gives nothing a longer life."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since the epoch that never run backwards, whatever is done to the machine's clock."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with the machine's time."""
        self._wall = wall
        self._steady = steady
        self._time, self._at = wall(), steady()

    def __call__(self) -> float:
        """Now: the machine's time, or what has passed since the last reading where that is more."""
        at = self._steady()
        self._time = max(self._wall(), self._time + at - self._at)
        self._at = at
        return self._time
