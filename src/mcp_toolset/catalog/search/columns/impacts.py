"""`ImpactColumns`: the impacts of a term that many tools have, as one long integer.

`WordQuery` adds up the columns of a query's common terms, all tools at once. A column is made when its term
is first asked for, follows the changes of its posting, and is dropped when many others were asked for since.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

from mcp_toolset.catalog.search.postings import Column, Places, Posting

LANE_BYTES: Final = 4
"""How much of a column belongs to each place."""

# A term that one tool in so many has is common.
_COMMON = 64
# All columns together have at most so many numbers, but a few columns there always are.
_NUMBERS = 1 << 19
_LEAST, _MOST = 24, 256
# With more changes than this a column is made anew.
_FEW = 64


class ImpactColumn:
    """The impact of one term at each place: thirty-two bits a place, 0 where the term is not."""

    def __init__(self, posting: Posting, size: int) -> None:
        """Take the impacts of a posting at places below `size`."""
        by_place = array("I", bytes(LANE_BYTES * size))
        for places, impacts in posting.parts():
            for place, impact in zip(places, impacts, strict=True):
                by_place[place] = impact
        self._lanes = int.from_bytes(in_order(by_place), "little")
        self._changes: list[tuple[int, int]] = []

    def change(self, place: int, impact: int) -> bool:
        self._changes.append((place, impact))
        return len(self._changes) <= _FEW

    def lanes(self) -> int:
        for place, impact in self._changes:
            self._lanes += impact << (8 * LANE_BYTES * place)
        self._changes.clear()
        return self._lanes


def in_order(numbers: array[int]) -> bytes:
    """The bytes of the numbers, the lowest of each first."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class ImpactColumns:
    """The columns of the common terms that were asked for last."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._held: dict[Posting, None] = {}

    def of(self, posting: Posting) -> Column | None:
        """The column of a common term; `None` for a rare one."""
        size = len(self._places.names)
        if _COMMON * len(posting) < size:
            return None
        self._held.pop(posting, None)
        self._held[posting] = None
        if posting.column is None:
            posting.column = ImpactColumn(posting, size)
            self._forget_oldest(size)
        return posting.column

    def _forget_oldest(self, size: int) -> None:
        if len(self._held) > max(_LEAST, min(_MOST, _NUMBERS // size)):
            oldest = next(iter(self._held))
            del self._held[oldest]
            oldest.column = None
