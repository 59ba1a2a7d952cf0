"""`Turn`: has a task that works through much input leave the event loop to others, every few milliseconds."""

from __future__ import annotations

from time import monotonic
from typing import Final

from anyio.lowlevel import checkpoint

TURN: Final = 0.005
"""Seconds that one reader works before others have their turn."""


class Turn:
    """The time that one task has worked since it last gave way."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = monotonic() + TURN

    @property
    def is_over(self) -> bool:
        return monotonic() > self._until

    async def pause(self) -> None:
        """Give way, if it is the turn of others."""
        if monotonic() > self._until:
            await checkpoint()
            self._until = monotonic() + TURN
