"""`Allowance`: a rate limit on what a mounted server sends beside its answers."""

from __future__ import annotations

from time import monotonic
from typing import Final

BURST: Final = 64 * 1024 * 1024
"""Bytes of a full allowance."""

PER_SECOND: Final = 4 * 1024 * 1024
"""Bytes by which an allowance is refilled in a second."""

PER_LINE: Final = 64
PER_PIECE: Final = 256
PER_CHUNK: Final = 1024
PER_REQUEST: Final = 4 * 1024
PER_INTERIM: Final = 64 * 1024
"""The least that each of these costs, in bytes: a line; a message or a piece of a body; a small chunk, which
takes 10 µs to parse; a request of the server, which a POST answers; an interim response (1xx)."""


class FloodError(Exception):
    """A server has used up its `Allowance`."""


class Allowance:
    """The allowance of one connection to a mounted server: a token bucket of bytes."""

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
