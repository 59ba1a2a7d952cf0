"""`Posting` and `WordQuery`: the tools that have a term, and the scores of a query's terms summed by tool.

Tools have places, small whole numbers, and impacts are whole numbers too, so that a posting is one flat
array of eight bytes a tool.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cached_property
from typing import Final

from mcp_toolset._records import dataclass

# Up to this number of tools are removed one by one; for more, writing the posting anew is faster.
_FEW = 8


class Places:
    """A place for each public name; places of removed names are reused."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.of: dict[str, int] = {}
        self._vacant: list[int] = []

    def take(self, name: str) -> int:
        """Give a place to a name that has none."""
        if self._vacant:
            place = self._vacant.pop()
            self.names[place] = name
        else:
            place = len(self.names)
            self.names.append(name)
        self.of[name] = place
        return place

    def free(self, name: str) -> int:
        """Free the place of a name; return it."""
        place = self.of.pop(name)
        self._vacant.append(place)
        return place

    def at(self, names: Iterable[str]) -> frozenset[int]:
        """The places of those of these names that have one."""
        return frozenset(self.of[name] for name in names if name in self.of)


IMPACT: Final = 1 << 24
"""The whole number that stands for an impact of 1."""


@dataclass(slots=True, eq=False)
class Posting:
    """The tools that have one term, unordered: a place and the impact of the term there, in turn."""

    term: str
    numbers: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.numbers) // 2

    def drop(self, places: AbstractSet[int]) -> None:
        """Remove tools that are in the posting."""
        if len(places) <= _FEW:
            for place in places:
                self._drop_one(place)
        else:
            both = zip(self.numbers[::2], self.numbers[1::2], strict=True)
            kept = [number for pair in both if pair[0] not in places for number in pair]
            self.numbers = array("i", kept)

    def _drop_one(self, place: int) -> None:
        numbers = self.numbers
        at = _at(numbers, place)
        impact, last = numbers.pop(), numbers.pop()
        if last != place:
            numbers[at], numbers[at + 1] = last, impact


def _at(numbers: array[int], place: int) -> int:
    """Where a place that is in the posting stands; its bytes are found at the speed of memory."""
    every, wanted, size = numbers.tobytes(), array("i", (place,)).tobytes(), numbers.itemsize
    at = every.index(wanted)
    while at % (2 * size):
        at = every.index(wanted, at + 1)
    return at // size


@dataclass(frozen=True, slots=True)
class Clause:
    """One term of a query: its weight and its posting."""

    weight: float
    posting: Posting


class WordQuery:
    """A query as its terms, heaviest first; valid until the index changes.

    Attributes:
        ceiling: The score of a tool that matches the query perfectly.
        telling: How many telling words the query has: one that a single tool has counts as 1, one that all
            tools have as nearly nothing.
    """

    def __init__(
        self,
        clauses: Sequence[Clause],
        unknown: float,
        most: float,
        telling: float,
        places: Places,
        held: Mapping[str, Iterable[Posting]],
    ) -> None:
        """A query of the known terms in `clauses`; `unknown` is the weight of the others together."""
        self._clauses = clauses
        self._most = most
        self._places = places
        self._held = held
        self.telling = telling
        self.ceiling = most * (sum(clause.weight for clause in clauses) + unknown) or 1.0

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """The best public names, best first, with the share of the query that each matches (0 to 1).

        Args:
            count: The largest number of names; 1 or more.
            among: The public names to choose from; all of them if `None`.
        """
        scores = self._highest(count) if among is None else self._of(among)
        first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
        return {name: score / self.ceiling for name, score in first}

    def shares(self, names: Iterable[str]) -> dict[str, float]:
        """The share of the query that each of these names matches, if any."""
        return {name: score / self.ceiling for name, score in self._of(names).items()}

    def coverage(self, name: str) -> float:
        """How much of the query a tool has in any field: 0 to 1, weighted by the rarity of the terms."""
        held = frozenset(self._held.get(name, ()))
        had = sum(clause.weight for clause in self._clauses if clause.posting in held)
        return had * self._most / self.ceiling if had else 0.0

    @cached_property
    def _scores(self) -> dict[int, float]:
        """The score at every place that matches."""
        scores: dict[int, float] = {}
        for clause in self._clauses:
            weight, numbers = clause.weight, clause.posting.numbers
            if scores:
                for place, impact in zip(numbers[::2], numbers[1::2], strict=True):
                    scores[place] = scores.get(place, 0.0) + weight * impact
            else:
                scores = dict(zip(numbers[::2], map(weight.__mul__, numbers[1::2]), strict=True))
        return scores

    def _of(self, names: Iterable[str]) -> dict[str, float]:
        of, scores = self._places.of, self._scores
        places = [(name, of[name]) for name in names if name in of]
        return {name: scores[place] for name, place in places if place in scores}

    def _highest(self, count: int) -> dict[str, float]:
        """The `count` highest scores, with all that equal the lowest of them."""
        names, found = self._places.names, self._scores
        if len(found) > count:
            last = heapq.nlargest(count, found.values())[-1]
            found = {place: score for place, score in found.items() if score >= last}
        return {names[place]: score for place, score in found.items()}
