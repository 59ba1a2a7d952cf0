"""`Load`: what requests hold while they are answered, and how many of the long ones begin in one turn."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from anyio.lowlevel import checkpoint

from mcp_toolset.concurrency import turns

LONG: Final = 4 * 1024
"""Bytes from which a body is counted."""

MAX_HELD: Final = 256 * 1024 * 1024
"""Bytes that the requests with such bodies may hold together, as `held_by` counts them."""

FULL: Final = "Too many long requests are being answered; try again later"


class Load:
    """The requests that are being answered: one budget for their bodies, and their turns.

    To read a long body and to check its values can take half a second of one turn of the event loop. Bodies
    that arrive together would take that many times, before anybody else has a turn.
    """

    def __init__(self) -> None:
        self._size = 0
        self._since: float | None = None

    def takes(self, size: int) -> bool:
        """Count so many bytes, if there is room for them."""
        fits = self._size + size <= MAX_HELD
        if fits:
            self._size += size
        return fits

    def give_back(self, size: int) -> None:
        """Count them no more."""
        self._size -= size

    async def turn(self) -> None:
        """Wait for a turn of the event loop in which long requests have not taken much time yet."""
        while self._since is not None and monotonic() - self._since > turns.TURN:
            await checkpoint()
        if self._since is None:
            self._since = monotonic()
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._since = None


class Hold:
    """What one message holds, for as long as somebody has this object."""

    __slots__ = ("_load", "_size")

    def __init__(self, load: Load, size: int) -> None:
        """Hold `size` bytes, which `load` has taken."""
        self._load = load
        self._size = size

    def __del__(self) -> None:
        self._load.give_back(self._size)
