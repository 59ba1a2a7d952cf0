"""`Flag`: news for one task of an event loop, from whatever thread they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import current_token


class Flag:
    """Set by anybody, any number of times; the task that waits for it takes them all at once."""

    def __init__(self) -> None:
        """Not set, and not yet part of an event loop."""
        self._event = anyio.Event()
        self._thread = threading.get_ident()
        self._soon: Callable[[Callable[[], None]], Any] | None = None

    def attach(self) -> None:
        """Belong to the event loop of this task."""
        if not self._event.is_set():
            # The last one may have been waited for on another loop, on which the server was open before.
            self._event = anyio.Event()
        native: Any = current_token().native_token
        self._thread = threading.get_ident()
        # asyncio's loop and Trio's token name the same thing differently.
        self._soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def set(self) -> None:
        """Wake the task that waits, now or when it comes to wait; never blocks."""
        if self._soon is None or threading.get_ident() == self._thread:
            self._event.set()
            return
        try:
            self._soon(lambda: self._event.set())
        except RuntimeError:
            # That loop is closed: what opens on the next one finds the flag set.
            self._event.set()

    def is_set(self) -> bool:
        """Whether it was set since it was last taken."""
        return self._event.is_set()

    def clear(self) -> None:
        """Forget what has been told so far, because it was taken in by other ways."""
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait until it is set, and take it back."""
        await self._event.wait()
        self._event = anyio.Event()
