"""`Load`: what requests hold while they are answered, and how many of the long ones begin in one turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import Final

from anyio.lowlevel import checkpoint
from starlette.types import Scope

from mcp_toolset.concurrency import turns
from mcp_toolset.context.principal import principal_of
from mcp_toolset.protocol.codec import held_by
from mcp_toolset.transports.http.limits import peer_of

LONG: Final = 4 * 1024
"""Bytes from which a body is counted."""

MAX_HELD: Final = 256 * 1024 * 1024
"""Bytes that the requests with such bodies may hold together, as `held_by` counts them."""

OWN_HELD: Final = MAX_HELD // 2
"""The same of one caller: the one who has logged in, else an address."""

FULL: Final = "Too many long requests are being answered; try again later"


class Load:
    """The requests that are being answered: one budget for their bodies, and their turns.

    To read a long body and to check its values can take half a second of one turn of the event loop. Bodies
    that arrive together would take that many times, before anybody else has a turn.
    """

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._since: float | None = None

    def hold(self, body: bytes, scope: Scope) -> Hold | None:
        """Count what a body holds until the object is given up; `None` if there is no room for it."""
        size = held_by(body)
        caller = principal_of(scope) or f"at {peer_of(scope.get('client'))}"
        if self._held[caller] + size > OWN_HELD or self._held.total() + size > MAX_HELD:
            return None
        self._held[caller] += size
        return Hold(self, size, caller)

    def give_back(self, size: int, caller: str) -> None:
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]

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

    __slots__ = ("__weakref__", "_caller", "_load", "_size")

    def __init__(self, load: Load, size: int, caller: str) -> None:
        """Hold `size` bytes, which `load` has counted."""
        self._load = load
        self._size = size
        self._caller = caller

    def __del__(self) -> None:
        self._load.give_back(self._size, self._caller)
