"""`Histograms`: durations summed by what they are of, in the buckets that the conventions name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets in seconds, of the conventions for MCP; the last bucket has none."""

MOST: Final = 10_000
"""Histograms of one kind; what is of further ones is summed in one."""

Key = tuple[str, ...]


class Histogram:
    """A sum of durations, and how many of them each bucket has."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        """How many durations."""
        return sum(self.buckets)

    def note(self, seconds: float) -> None:
        self.total += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1

    def add(self, other: Histogram) -> None:
        self.total += other.total
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Histograms(dict[Key, Histogram]):
    """A histogram for each key, made when it is first asked for."""

    def __init__(self, rest: Key) -> None:
        """Sum what has no room under the key `rest`."""
        super().__init__()
        self._rest = rest

    def __missing__(self, key: Key) -> Histogram:
        return self.setdefault(key if len(self) < MOST else self._rest, Histogram())

    def copies(self) -> Iterator[tuple[Key, Histogram]]:
        """Each key with a copy of its histogram; a thread may ask while calls go on."""
        for key, found in list(self.items()):
            copy = Histogram()
            copy.add(found)
            yield key, copy
