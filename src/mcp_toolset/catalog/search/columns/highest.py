"""`highest`: the highest of very many small numbers, found at the speed of memory."""

from __future__ import annotations

import re

_SET = re.compile(b"\1")
_BELOW = [bytes(range(bar)) for bar in range(256)]


def highest(numbers: bytes | bytearray, count: int) -> list[int]:
    """The places of at least the `count` highest bytes, with all that equal the lowest of them, above 0."""
    rest, bar = numbers, 0
    for bit in (128, 64, 32, 16, 8, 4, 2, 1):
        # Only those that reach the bar are left, so that later steps cost less.
        reaching = rest.translate(None, _BELOW[bar | bit])
        if len(reaching) >= count:
            rest, bar = reaching, bar | bit
    bar = max(1, bar)
    marked = numbers.translate(bytes(bar) + b"\1" * (256 - bar))
    return [match.start() for match in _SET.finditer(marked)]
