"""Deadlines: `WorkingTime`, the deadline of a call, which pauses while the call's client is asked."""

from __future__ import annotations

from typing import Final

import anyio

REQUEST_TIMEOUT: Final = 30.0
"""Seconds within which the head of an HTTP request must arrive, and then its body."""


class WorkingTime:
    """The deadline of a cancel scope that can be paused, such as while a user answers a question."""

    __slots__ = ("_left", "_scope", "_stops")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._stops = 0
        self._left = 0.0

    def pause(self) -> None:
        """Pause the deadline; several pauses may overlap."""
        self._stops += 1
        if self._stops == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")

    def resume(self) -> None:
        """End one pause; the deadline runs again when all pauses have ended."""
        self._stops -= 1
        if self._stops == 0:
            self._scope.deadline = anyio.current_time() + self._left
