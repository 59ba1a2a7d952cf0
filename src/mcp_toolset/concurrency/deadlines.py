"""Deadlines: `WorkingTime`, which pauses while a call's client is asked, and `Deadlines`, for many things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Final, Generic, TypeVar

import anyio

_SLACK: Final = 0.01  # Seconds that a deadline may be late, so that all are looked at this seldom.

_T = TypeVar("_T")

REQUEST_TIMEOUT: Final = 30.0  # Seconds for the head of an HTTP request, and then for its body.


class WorkingTime:
    """The deadline of a cancel scope that can be paused, such as while a user answers a question."""

    __slots__ = ("_left", "_scope", "_stops")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._stops = 0
        self._left = 0.0

    def pause(self) -> None:
        self._stops += 1
        if self._stops == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")

    def resume(self) -> None:
        self._stops -= 1
        if self._stops == 0:
            self.give(self._left)

    def give(self, seconds: float) -> None:
        """Let it end so many seconds from now.

        The timer has no context: asyncio keeps a cancelled one until its time, and with it what a call knows.
        """
        Context().run(setattr, self._scope, "deadline", anyio.current_time() + seconds)


class Deadlines(Generic[_T]):
    """The times that things of one kind have, with one timer: one for each would cost a call too much."""

    __slots__ = ("_late", "_next", "_timer", "_until")

    def __init__(self, late: Callable[[_T], None]) -> None:
        self._late = late
        self._until: dict[_T, float] = {}
        self._next = inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, one: _T, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = self._until[one] = now + seconds
        # A time that is over was that of an event loop that has ended.
        if until < self._next or self._next < now:
            self._arm(loop, until)

    def end(self, one: _T) -> None:
        self._until.pop(one, None)

    def stop(self) -> None:
        self._until.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = until
        # Without the variables of the call that happens to be the first.
        self._timer = loop.call_at(until, self._look, context=Context())

    def _look(self) -> None:
        self._timer, self._next = None, inf
        loop = asyncio.get_running_loop()
        now = loop.time()
        for one in [one for one, until in self._until.items() if until <= now]:
            del self._until[one]
            self._late(one)
        if self._until:
            self._arm(loop, max(min(self._until.values()), now + _SLACK))
