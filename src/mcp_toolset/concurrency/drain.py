"""`Ending`: how something that runs is ended from outside, once nothing is under way in it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio


class Ending:
    """The end of one run, and what it waits for.

    Attributes:
        working: How many requests are under way.
    """

    def __init__(self) -> None:
        """Not running yet."""
        self.working = 0
        self._scope: anyio.CancelScope | None = None
        self._idle: anyio.Event | None = None
        self._asked = False

    @contextmanager
    def open(self) -> Generator[None]:
        """The length of the run; what is in it is cancelled when it is to end."""
        with anyio.CancelScope() as self._scope:
            if self._asked:
                self._scope.cancel()
            try:
                yield
            finally:
                self._scope, self._asked = None, False

    def freed(self) -> None:
        """Say that something is not under way any more."""
        if self._idle is not None:
            self._idle.set()

    async def after(self, drain: float, others: Callable[[], bool]) -> None:
        """Wait until nothing is under way, for `drain` seconds at most; then end the run.

        Args:
            drain: Seconds.
            others: Whether something besides the counted requests is under way.
        """
        try:
            with anyio.move_on_after(drain):
                while self.working or others():
                    self._idle = anyio.Event()
                    await self._idle.wait()
        finally:
            self._asked = True
            if self._scope is not None:
                self._scope.cancel()
