"""`LineBuffer`: messages are lines; they are split in linear time and capped (F11, F33)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes of one incoming message; a longer line is skipped, and its request fails or is refused."""

_HEAD: Final = 256


class Overlong(bytes):
    """The start of a line that was too long; the rest of it was skipped."""


class LineBuffer:
    """Splits a stream of bytes into lines in linear time, skipping lines over a limit."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        """Skip lines of more than `limit` bytes."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that `chunk` completes; of one that was too long, an `Overlong`."""
        ends = chunk.split(b"\n")
        rest = ends.pop()
        for end in ends:
            if not self._size and len(end) <= self._limit:
                yield end
                continue
            self._add(end)
            yield b"".join(self._parts) if self._size <= self._limit else Overlong(self._head)
            self._parts, self._size = [], 0
        if rest:
            self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        elif self._size - len(part) <= self._limit:
            self._head = _start_of((*self._parts, part))
            self._parts = []


def _start_of(parts: Iterable[bytes]) -> bytes:
    head = b""
    for part in parts:
        head += part[: _HEAD - len(head)]
        if len(head) == _HEAD:
            break
    return head
