"""`Drain`: end a run from outside once no request is in flight, or after a time limit."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio


class Drain:
    """The end of one run, and the requests in flight that it waits for."""

    def __init__(self) -> None:
        self.working = 0
        self._scope: anyio.CancelScope | None = None
        self._idle: anyio.Event | None = None
        self._is_closing = False

    @contextmanager
    def open(self) -> Generator[None]:
        """The length of the run; the block is cancelled when the drain ends."""
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
