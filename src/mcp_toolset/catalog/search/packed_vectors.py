"""`PackedVectors`: cosine similarity of a query to every tool, exact and in the standard library alone.

`MeaningScorer` and `EmbeddingScorer` hold their vectors here. A vector is kept as small whole numbers, and so
is a query. One dimension of all tools is one long integer, a column, with sixteen bits for each tool. The sum
of the columns, each times the query's number for that dimension, holds the products of all tools at once:
the interpreter multiplies and adds long integers at the speed of memory. Vectors that have changed since the
columns were built have a few columns of their own, so a change costs the same in every catalog.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from math import sqrt
from operator import mul
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.stored.base import VectorRows

_PRODUCT_BYTES = 2
_MIDDLE = 32
_LARGEST = 31
_LEAST, _MOST = _MIDDLE - _LARGEST, _MIDDLE + _LARGEST
_MIDDLE_AND_HALF = _MIDDLE + 0.5
# The values of a unit vector of n dimensions lie around 1/√n; larger ones than this many times that are cut.
_REACH = 3.5
# The sizes of a query's numbers sum to this at most, so that sixteen bits hold each product: 1,040 × 63 <
# 2¹⁶.
_QUERY_SUM = 1_040
_FINER = 0.99
# Columns of fewer names than one in so many are faster than the columns of all.
_FEWER = 4
# After so many changes the columns are built anew.
_RECENT = 256
_SET = re.compile(b"\1")


class Similarity(Protocol):
    """The cosine similarity of one query to every tool."""

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """The cosines of the given names that have a vector."""
        ...

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """At most `count` names with cosines above 0, best first, equal ones by name."""
        ...


class PackedVectors:
    """Vectors by name, compared with a query all at once."""

    def __init__(self, dimensions: int, base: VectorRows | None = None) -> None:
        """Start empty, or with the vectors of a file."""
        self._dimensions = dimensions
        self._step = _REACH / sqrt(dimensions) / _LARGEST
        self._base = base
        # A vector, or its row in the file.
        self._vectors: dict[str, bytes | int] = {}
        self._columns: _Columns | None = None
        if base is not None:
            self._vectors.update(zip(base.names, range(len(base.names)), strict=True))
            self._columns = _Columns(base.names, base.rows, dimensions)
        self._recent: dict[str, bytes] = {}
        self._recent_columns: _Columns | None = None
        self._some: tuple[frozenset[str], _Columns] | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def put(self, name: str, vector: Sequence[float]) -> None:
        """Set the vector of a name. Its length does not matter; one of length 0 is similar to nothing."""
        scale = 1 / (_length(vector) * self._step)
        # `int` cuts off the fraction, so half a step is added first; `round` is much slower.
        numbers = [int(value * scale + _MIDDLE_AND_HALF) for value in vector]
        if max(numbers) > _MOST or min(numbers) < _LEAST:
            numbers = [max(_LEAST, min(_MOST, number)) for number in numbers]
        self._leave(name)
        self._vectors[name] = row = bytes(numbers)
        if self._columns is not None:
            self._recent[name] = row

    def row(self, name: str) -> bytes | None:
        """The vector of a name as it is kept."""
        vector = self._vectors.get(name)
        if isinstance(vector, int) and self._base is not None:
            return bytes(self._base.rows[vector * self._dimensions : (vector + 1) * self._dimensions])
        return vector if isinstance(vector, bytes) else None

    def _columns_for(self, names: Iterable[str]) -> _Columns:
        rows = {name: row for name in names if (row := self.row(name)) is not None}
        return _Columns(tuple(rows), b"".join(rows.values()), self._dimensions)

    def _every(self) -> tuple[_Columns, ...]:
        if self._columns is None:
            self._columns = self._columns_for(self._vectors)
        if not self._recent:
            return (self._columns,)
        if self._recent_columns is None:
            self._recent_columns = self._columns_for(self._recent)
        return self._columns, self._recent_columns

    def _columns_of(self, among: frozenset[str]) -> tuple[_Columns, ...]:
        if _FEWER * len(among) > len(self._vectors):
            return self._every()
        if self._some is None or self._some[0] is not among:
            self._some = among, self._columns_for(among)
        return (self._some[1],)

    def drop(self, name: str) -> None:
        """Remove the vector of a name, if it has one."""
        if self._vectors.pop(name, None) is not None:
            self._leave(name)

    def _leave(self, name: str) -> None:
        """Make the columns forget a name, which they may have; all of them after many changes."""
        self._recent_columns = self._some = None
        self._recent.pop(name, None)
        columns = self._columns
        if columns is not None and max(len(self._recent), columns.leave(name)) >= _RECENT:
            self._columns = None
            self._recent.clear()

    def cosines(
        self, vector: Sequence[float], scale: float = 1.0, among: AbstractSet[str] | None = None
    ) -> Cosines:
        """The cosine of a query's vector with every vector, times `scale`.

        Of a frozen set of a few names in `among` only with theirs; the next query among these is quick.
        """
        columns = self._columns_of(among) if isinstance(among, frozenset) else self._every()
        query, finer = _whole_numbers(vector)
        products = [(each, each.products(query)) for each in columns]
        return Cosines(products, _zero(query), scale * self._step / (finer * _length(vector)))


class Cosines:
    """The cosines of one query with all vectors, computed for a name when they are read; see `Similarity`."""

    def __init__(self, products: Sequence[tuple[_Columns, Sequence[int]]], zero: int, unit: float) -> None:
        self._products = products
        self._zero = zero
        self._unit = unit

    @property
    def names(self) -> Sequence[str]:
        """The names that have a vector."""
        return [name for columns, _ in self._products for name in list(columns.places)]

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """See `Similarity`."""
        names = list(names)
        return {
            name: self._cosine(products[place])
            for columns, products in self._products
            for name in names
            if (place := columns.places.get(name)) is not None
        }

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """See `Similarity`."""
        found: list[tuple[int, str]] = []
        for columns, products in self._products:
            if among is None:
                places = columns.highest(products, count, self._zero + int(1 / self._unit))
            else:
                places = [place for name in among if (place := columns.places.get(name)) is not None]
            found += [(-products[place], columns.names[place]) for place in places]
        found = sorted(pair for pair in found if -pair[0] > self._zero)
        return {name: self._cosine(-product) for product, name in found[:count]}

    def _cosine(self, product: int) -> float:
        return (product - self._zero) * self._unit


class _Columns:
    """All vectors at one moment: a long integer for each dimension, sixteen bits for each tool."""

    def __init__(self, names: Sequence[str], rows: bytes | memoryview, dimensions: int) -> None:
        """Take the vectors of some names, one after another; they are arranged for the first query."""
        self.names = names
        self.places = dict(zip(names, range(len(names)), strict=True))
        self._rows = rows
        self._dimensions = dimensions
        self._left: list[int] = []

    @cached_property
    def _columns(self) -> list[int]:
        rows, size = bytes(self._rows), self._dimensions
        # A file's rows are left to the file.
        self._rows = b""
        return [_spread(rows[dimension::size]) for dimension in range(size)]

    @cached_property
    def _ones(self) -> int:
        return _spread(b"\1" * len(self.names))

    def leave(self, name: str) -> int:
        """Let a name go, if it is here; return how many have gone."""
        place = self.places.pop(name, None)
        if place is not None:
            self._left.append(place)
        return len(self._left)

    def products(self, query: Sequence[int]) -> Sequence[int]:
        """The product of each place with the query, above `_zero(query)` if it is above 0."""
        total = _credit(query) * self._ones
        for number, columns in self._by_size(query).items():
            total += number * columns
        products = array("H", total.to_bytes(_PRODUCT_BYTES * len(self.names), "little"))
        if sys.byteorder == "big":
            products.byteswap()
        for place in self._left:
            products[place] = 0
        return products

    def _by_size(self, query: Sequence[int]) -> dict[int, int]:
        """The sums of the columns that share a number: adding is cheaper than multiplying."""
        sums: dict[int, int] = {}
        for number, column in zip(query, self._columns, strict=True):
            if number:
                size = abs(number)
                sums[size] = sums.get(size, 0) + (column if number > 0 else -column)
        return sums

    def highest(self, products: Sequence[int], count: int, most: int) -> list[int]:
        """The places of at least the `count` highest products, with all that equal the lowest of them.

        `most` is about the largest possible product.
        """
        # Counting bytes is nearly free, and the upper byte of a product rules most places out.
        upper = array("H", products).tobytes()[sys.byteorder == "little" :: _PRODUCT_BYTES]
        bar, found = min(256, (most >> 8) + 2), 0
        while bar and found < count:
            bar -= 1
            found += upper.count(bar)
        high = upper.translate(bytes(bar) + b"\1" * (256 - bar))
        return [match.start() for match in _SET.finditer(high)]


def _spread(numbers: bytes) -> int:
    """A long integer with sixteen bits for each byte."""
    wide = bytearray(_PRODUCT_BYTES * len(numbers))
    wide[::_PRODUCT_BYTES] = numbers
    return int.from_bytes(wide, "little")


def _credit(query: Sequence[int]) -> int:
    """The most that negative numbers can subtract: added to every place, so that none is below 0."""
    return -_MOST * sum(number for number in query if number < 0)


def _zero(query: Sequence[int]) -> int:
    """The number that stands for a product of 0."""
    return _credit(query) + _MIDDLE * sum(query)


def _length(vector: Sequence[float]) -> float:
    return sqrt(sum(map(mul, vector, vector))) or 1.0


def _whole_numbers(vector: Sequence[float]) -> tuple[list[int], float]:
    """The vector as whole numbers whose sizes sum to `_QUERY_SUM` at most, and what 1 became."""
    scale = _QUERY_SUM / (sum(map(abs, vector)) or 1.0)
    while True:
        numbers = [round(value * scale) for value in vector]
        if sum(map(abs, numbers)) <= _QUERY_SUM:
            return numbers, scale
        scale *= _FINER
