"""`ThreadEvent`: an event that any thread may set and one task waits for; it resets itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import current_token


class ThreadEvent:
    """An auto-reset event: setting it several times wakes the waiting task once."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._thread = threading.get_ident()
        self._soon: Callable[[Callable[[], None]], Any] | None = None

    def attach(self) -> None:
        """Attach to the event loop of the current task."""
        if not self._event.is_set():
            # The old event may belong to an event loop on which the server was open before.
            self._event = anyio.Event()
        native: Any = current_token().native_token
        self._thread = threading.get_ident()
        # asyncio has this function on the loop, Trio on its token, under another name.
        self._soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def set(self) -> None:
        """Wake the waiting task, or the next one to wait; never blocks; may be called in any thread."""
        if self._soon is None or threading.get_ident() == self._thread:
            self._event.set()
            return
        try:
            self._soon(lambda: self._event.set())
        except RuntimeError:
            # That event loop is closed: the next one to attach finds the event set.
            self._event.set()

    def is_set(self) -> bool:
        """Whether it was set since the last `wait` or `clear`."""
        return self._event.is_set()

    def clear(self) -> None:
        """Reset it, because the caller has handled what it reported."""
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait until it is set, and reset it."""
        await self._event.wait()
        self._event = anyio.Event()
