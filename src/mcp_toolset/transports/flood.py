"""`Allowance`: how much a mounted server may send that answers nothing, before its connection is cut.

Comments, pings, notifications, interim responses and tiny pieces cost the bridge work, and no budget of
answers counts them. Each costs its bytes and a fixed amount. The allowance refills with time, so that a
stream may last for days.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

BURST: Final = 64 * 1024 * 1024
"""Bytes that may come at once, and are refilled."""

PER_SECOND: Final = 4 * 1024 * 1024
"""Bytes that are refilled in a second."""

PER_LINE: Final = 64
PER_PIECE: Final = 256
PER_REQUEST: Final = 4 * 1024
PER_INTERIM: Final = 64 * 1024
"""Bytes that these count at least: a line, a message or a small piece of a body; a request of the server,
which a POST answers; an interim response (1xx)."""


class FloodError(Exception):
    """A server sends more that answers nothing than it may."""


class Allowance:
    """What is left for one connection to a mounted server."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since = monotonic()

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            now = monotonic()
            self._left, self._since = min(BURST, self._left + (now - self._since) * PER_SECOND), now
            if self._left < 0:
                raise FloodError(
                    f"it floods the connection: over {BURST // 2**20} MiB of notifications, comments or tiny "
                    f"pieces at once, and over {PER_SECOND // 2**20} MiB a second; have it send less"
                )
