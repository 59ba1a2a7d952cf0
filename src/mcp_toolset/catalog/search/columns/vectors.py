"""`VectorColumns`: the products of a query with many vectors, all at once.

One dimension of all vectors is one long integer, a column. The sum of the columns, each times the query's
number for that dimension, holds the products of all vectors: the interpreter adds long integers at the speed
of memory. With sixteen bits for each vector products are exact. With eight, and two bits of each number, they
only tell which vectors are worth exact ones: that is the sketch.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

from mcp_toolset.catalog.search.columns.highest import highest

MIDDLE: Final = 32
LARGEST: Final = 31
LEAST: Final = MIDDLE - LARGEST
MOST: Final = MIDDLE + LARGEST

_PRODUCT_BYTES = 2
# The sizes of a query's numbers sum to this at most, so that sixteen bits hold each product: 1,040 × 63 <
# 2¹⁶, and in a sketch eight bits: 85 × 3 < 2⁸.
_QUERY_SUM, _SKETCH_SUM = 1_040, 85
_FINER = 0.99
# Vectors of a catalog have normally distributed numbers; so two bits lose least.
_SKETCH_BARS = 24, 32, 41
_SKETCHED = bytes(sum(number >= bar for bar in _SKETCH_BARS) for number in range(256))


class VectorColumns:
    """Vectors at one moment; one is a row of numbers from `LEAST` to `MOST`, which stand for -31 to 31."""

    def __init__(self, names: Sequence[str], rows: Callable[[], bytes], dimensions: int) -> None:
        self.names = names
        self.places = dict(zip(names, range(len(names)), strict=True))
        self._rows = rows
        self._dimensions = dimensions
        self._left: list[int] = []

    @cached_property
    def _columns(self) -> list[int]:
        rows, size = self._rows(), self._dimensions
        return [_spread(rows[dimension::size]) for dimension in range(size)]

    @cached_property
    def _mirror(self) -> int:
        return _spread(bytes([MOST]) * len(self.names))

    @cached_property
    def _sketch(self) -> list[int]:
        rows, size = self._rows().translate(_SKETCHED), self._dimensions
        return [int.from_bytes(rows[dimension::size], "little") for dimension in range(size)]

    @cached_property
    def _sketch_mirror(self) -> int:
        return int.from_bytes(b"\3" * len(self.names), "little")

    def leave(self, name: str) -> int:
        """Let a name go, if it is here; return how many have gone."""
        place = self.places.pop(name, None)
        if place is not None:
            self._left.append(place)
        return len(self._left)

    def products(self, query: Sequence[int]) -> array[int]:
        """The product of each place with whole numbers, above `zero_of(query)` if it is above 0."""
        total = _total(query, self._columns, self._mirror)
        products = array("H", total.to_bytes(_PRODUCT_BYTES * len(self.names), "little"))
        if sys.byteorder == "big":
            products.byteswap()
        for place in self._left:
            products[place] = 0
        return products

    def highest(self, products: array[int], count: int) -> list[int]:
        """The places of at least the `count` highest products, as far as their upper byte is above 0."""
        return highest(products.tobytes()[sys.byteorder == "little" :: _PRODUCT_BYTES], count)

    def sketched(self, vector: Sequence[float], count: int) -> list[str]:
        """About the `count` names whose vectors are nearest to a query's, by a coarse look at all."""
        query, _ = whole_numbers(vector, _SKETCH_SUM)
        total = _total(query, self._sketch, self._sketch_mirror)
        products = bytearray(total.to_bytes(len(self.names), "little"))
        for place in self._left:
            products[place] = 0
        return [self.names[place] for place in highest(products, count)]


def whole_numbers(vector: Sequence[float], most: int = _QUERY_SUM) -> tuple[list[int], float]:
    """A query's vector as whole numbers whose sizes sum to `most` at most, and what 1 became."""
    scale = most / (sum(map(abs, vector)) or 1.0)
    while True:
        numbers = [round(value * scale) for value in vector]
        if sum(map(abs, numbers)) <= most:
            return numbers, scale
        scale *= _FINER


def zero_of(query: Sequence[int]) -> int:
    """The number that stands for a product of 0."""
    return MIDDLE * sum(query) - MOST * sum(number for number in query if number < 0)


def _total(query: Sequence[int], columns: Sequence[int], mirror: int) -> int:
    """The sum of the columns, each times its number; of `mirror` minus the column if that is below 0.

    All bits of `mirror` that a column may have are set, so `^` subtracts, and faster.
    """
    # Columns that share a number are added first: adding is cheaper than multiplying.
    sums: dict[int, int] = {}
    for number, column in zip(query, columns, strict=True):
        if number > 0:
            sums[number] = sums.get(number, 0) + column
        elif number:
            sums[-number] = sums.get(-number, 0) + (column ^ mirror)
    return sum(number * added for number, added in sums.items())


def _spread(numbers: bytes) -> int:
    """A long integer with sixteen bits for each byte."""
    wide = bytearray(_PRODUCT_BYTES * len(numbers))
    wide[::_PRODUCT_BYTES] = numbers
    return int.from_bytes(wide, "little")
