"""Deadlines: of a request's arrival; of a call, whose time does not run while its client is asked."""

from __future__ import annotations

from typing import Final

import anyio

REQUEST_TIMEOUT: Final = 30.0
"""Seconds that the head of a request over HTTP may take to arrive, and its body after that."""


class WorkingTime:
    """The deadline of a scope, stopped for as long as somebody else is waited for."""

    __slots__ = ("_left", "_scope", "_stops")

    def __init__(self, scope: anyio.CancelScope) -> None:
        """Take over the deadline that a scope has."""
        self._scope = scope
        self._stops = 0
        self._left = 0.0

    def pause(self) -> None:
        """Stop the time; it may be stopped for several reasons at once."""
        self._stops += 1
        if self._stops == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")

    def resume(self) -> None:
        """Let it run on, unless it is stopped for another reason."""
        self._stops -= 1
        if self._stops == 0:
            self._scope.deadline = anyio.current_time() + self._left
