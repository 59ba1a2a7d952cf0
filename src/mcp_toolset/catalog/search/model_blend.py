"""Two models of meaning heard as one: each sees what the other misses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from mcp_toolset.catalog.search.packed_vectors import Cosines


class Blend:
    """The weighted mean of two outcomes; see `Likeness`."""

    def __init__(self, one: Cosines, other: Cosines, part: float) -> None:
        """Blend outcomes on one scale; `part` is how much of it is the first, from 0 to 1."""
        self._one, self._other = one, other
        self._part, self._rest = part, 1 - part

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """See `Likeness`."""
        names = list(names)
        one, other = self._one.of(names), self._other.of(names)
        return {
            name: self._part * one.get(name, 0.0) + self._rest * other.get(name, 0.0)
            for name in names
            if name in one or name in other
        }

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """See `Likeness`."""
        means = self.of(dict.fromkeys([*self._one.names, *self._other.names]) if among is None else among)
        found = sorted((-mean, name) for name, mean in means.items() if mean > 0)
        return {name: -mean for mean, name in found[:count]}

    def by_place(self, places: Mapping[str, int], count: int) -> Any:
        """See `Likeness`."""
        one = self._one.of_values(self._one.by_place(places, count))
        other = self._other.of_values(self._other.by_place(places, count))
        return self._part * one + self._rest * other

    def of_values(self, values: Any) -> Any:
        """See `Likeness`."""
        return values
