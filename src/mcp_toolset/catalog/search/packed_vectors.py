"""`PackedVectors`: cosine similarity of a query to every tool, in the standard library alone.

`MeaningScorer` and `EmbeddingScorer` hold their vectors here. A vector is kept as small whole numbers, and so
is a query, and `VectorColumns` compare all tools with it at once. Vectors that have changed since the columns
were built have a few columns of their own, so a change costs the same in every catalog.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from math import sqrt
from operator import mul
from typing import TYPE_CHECKING, Protocol

from mcp_toolset.catalog.search.columns.vectors import (
    LARGEST,
    LEAST,
    MIDDLE,
    MOST,
    VectorColumns,
    whole_numbers,
    zero_of,
)

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.stored.base import VectorRows

_MIDDLE_AND_HALF = MIDDLE + 0.5
# The values of a unit vector of n dimensions lie around 1/√n; larger ones than this many times that are cut.
_REACH = 3.5
# Columns of fewer names than one in so many are faster than the columns of all.
_FEWER = 4
# After so many changes the columns are built anew.
_RECENT = 256
# In a catalog of so many, a sketch chooses those that are compared: so many times those that are wanted.
_MANY = 3_000
_CHOSEN = 3


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
        self._dimensions = dimensions
        self._step = _REACH / sqrt(dimensions) / LARGEST
        self._base = base
        # A vector, or its row in the file.
        self._vectors: dict[str, bytes | int] = {}
        self._columns: VectorColumns | None = None
        if base is not None:
            self._vectors.update(zip(base.names, range(len(base.names)), strict=True))
            self._columns = VectorColumns(base.names, lambda: bytes(base.rows), dimensions)
        self._recent: dict[str, bytes] = {}
        self._recent_columns: VectorColumns | None = None
        self._some: tuple[frozenset[str], VectorColumns] | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def put(self, name: str, vector: Sequence[float]) -> None:
        """Set the vector of a name. Its length does not matter; one of length 0 is similar to nothing."""
        scale = 1 / (_length(vector) * self._step)
        # `int` cuts off the fraction, so half a step is added first; `round` is much slower.
        numbers = [int(value * scale + _MIDDLE_AND_HALF) for value in vector]
        if max(numbers) > MOST or min(numbers) < LEAST:
            numbers = [max(LEAST, min(MOST, number)) for number in numbers]
        self._leave(name)
        self._vectors[name] = row = bytes(numbers)
        if self._columns is not None:
            self._recent[name] = row

    def row(self, name: str) -> bytes | None:
        vector = self._vectors.get(name)
        if isinstance(vector, int) and self._base is not None:
            return bytes(self._base.rows[vector * self._dimensions : (vector + 1) * self._dimensions])
        return vector if isinstance(vector, bytes) else None

    def _columns_for(self, names: Iterable[str]) -> VectorColumns:
        names = tuple(name for name in names if name in self._vectors)
        return VectorColumns(names, partial(self._rows, names), self._dimensions)

    def _rows(self, names: Iterable[str]) -> bytes:
        """The vectors of names one after another; zeros for a name that has gone."""
        gone, size, vectors = bytes(self._dimensions), self._dimensions, self._vectors
        stored = b"" if self._base is None else self._base.rows
        rows = (vectors.get(name, gone) for name in names)
        return b"".join(
            [row if isinstance(row, bytes) else stored[row * size : (row + 1) * size] for row in rows]
        )

    def _every(self) -> tuple[VectorColumns, ...]:
        if self._columns is None:
            self._columns = self._columns_for(self._vectors)
        if not self._recent:
            return (self._columns,)
        if self._recent_columns is None:
            self._recent_columns = self._columns_for(self._recent)
        return self._columns, self._recent_columns

    def _columns_of(self, among: frozenset[str]) -> tuple[VectorColumns, ...]:
        if _FEWER * len(among) > len(self._vectors):
            return self._every()
        if self._some is None or not among <= self._some[0]:
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

        Of a frozen set of a few names in `among` at least with theirs; the next query among these is quick.
        """
        columns = self._columns_of(among) if isinstance(among, frozenset) else self._every()
        query, finer = whole_numbers(vector)
        products = [(each, each.products(query)) for each in columns]
        return Cosines(products, zero_of(query), scale * self._step / (finer * _length(vector)))

    def nearest(
        self, vector: Sequence[float], count: int, among: AbstractSet[str] | None, also: Iterable[str]
    ) -> dict[str, float]:
        """The result of `best_cosines`; in a large catalog a few of the last of the best may be others."""
        if len(self._vectors) < _MANY:
            return best_cosines(self.cosines(vector, among=among), count, among, also)
        chosen = self._chosen(vector, count, among)
        similarity = self.cosines(vector, among=chosen.union(also))
        return best_cosines(similarity, count, chosen, also)

    def _chosen(self, vector: Sequence[float], count: int, among: AbstractSet[str] | None) -> frozenset[str]:
        """What is worth comparing: `_CHOSEN` times the count, by the sketch, and what has changed since."""
        if among is not None and _FEWER * len(among) < len(self._vectors):
            return frozenset(among)
        columns, wanted = self._every()[0], _CHOSEN * count
        chosen = {*columns.sketched(vector, wanted), *self._recent}
        while among is not None and len(chosen & among) < count and wanted < len(self._vectors):
            wanted *= _FEWER
            chosen.update(columns.sketched(vector, wanted))
        return frozenset(chosen if among is None else chosen & among)


class Cosines:
    """The cosines of one query with all vectors, computed for a name when they are read; see `Similarity`."""

    def __init__(self, products: Sequence[tuple[VectorColumns, array[int]]], zero: int, unit: float) -> None:
        self._products = products
        self._zero = zero
        self._unit = unit

    @property
    def names(self) -> Sequence[str]:
        return [name for columns, _ in self._products for name in list(columns.places)]

    def of(self, names: Iterable[str]) -> dict[str, float]:
        names, found, zero, unit = list(names), dict[str, float](), self._zero, self._unit
        for columns, products in self._products:
            places = columns.places
            found |= {name: (products[places[name]] - zero) * unit for name in names if name in places}
        return found

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        found: dict[str, int] = {}
        for columns, products in self._products:
            places, names = columns.places, columns.names
            if among is None:
                found |= {names[place]: products[place] for place in columns.highest(products, count)}
            else:
                found |= {name: products[places[name]] for name in among if name in places}
        bar = max(sorted(found.values())[-count:][0] if found else 0, self._zero + 1)
        ranked = sorted((-product, name) for name, product in found.items() if product >= bar)
        return {name: (-product - self._zero) * self._unit for product, name in ranked[:count]}


def best_cosines(
    similarity: Similarity, count: int, among: AbstractSet[str] | None, also: Iterable[str]
) -> dict[str, float]:
    """The cosines of the `count` best names, and of every name in `also` that has one above 0."""
    every = among is not None and len(among) <= count
    cosines = similarity.of({*among, *also} if among is not None and every else also)
    found = {name: cosine for name, cosine in cosines.items() if cosine > 0}
    return found if every else found | similarity.best(count, among)


def _length(vector: Sequence[float]) -> float:
    return sqrt(sum(map(mul, vector, vector))) or 1.0
