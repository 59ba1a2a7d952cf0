"""`WordQuery`: the scores of a query's terms, summed by tool.

Impacts and weights are whole numbers here, so that the impacts of a common term at all tools can be added at
once (`ImpactColumns`); those of the other terms are added tool by tool.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import compress
from math import ceil

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.columns.highest import highest
from mcp_toolset.catalog.search.columns.impacts import LANE_BYTES, ImpactColumns, in_order
from mcp_toolset.catalog.search.postings import Places, Posting

_LANE_MOST = (1 << 8 * LANE_BYTES) - 1


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
        columns: ImpactColumns,
    ) -> None:
        """A query of the known terms in `clauses`; `unknown` is the weight of the others together."""
        self._clauses = clauses
        self._most = most
        self._places = places
        self._held = held
        self._columns = columns
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
        return (
            {name: score / self.ceiling for name, score in self._of(names).items()} if self._clauses else {}
        )

    def coverage(self, name: str) -> float:
        """How much of the query a tool has in any field: 0 to 1, weighted by the rarity of the terms."""
        place = self._places.of.get(name, -1)
        if 0 <= place < self._places.base:
            had = sum(clause.weight for clause in self._clauses if clause.posting.has_stored(place))
        else:
            held = frozenset(self._held.get(name, ()))
            had = sum(clause.weight for clause in self._clauses if clause.posting in held)
        return had * self._most / self.ceiling if had else 0.0

    @cached_property
    def _scores(self) -> array[int]:
        """The score at each place, in units; 0 where no term of the query is."""
        lanes, rare = 0, list[tuple[int, Posting]]()
        for clause in self._clauses:
            weight, column = ceil(clause.weight / self._unit), self._columns.of(clause.posting)
            if column is None:
                rare.append((weight, clause.posting))
            else:
                lanes += weight * column.lanes()
        scores = array("I", lanes.to_bytes(LANE_BYTES * len(self._places.names), "little"))
        if sys.byteorder == "big":
            scores.byteswap()
        for weight, posting in rare:
            for places, impacts in posting.parts():
                for place, impact in zip(places, impacts, strict=True):
                    scores[place] += weight * impact
        for place in self._places.gone:
            scores[place] = 0
        return scores

    @cached_property
    def _unit(self) -> float:
        """The unit of weights as whole numbers: a score of `most` for every term still fits a lane."""
        weights = _LANE_MOST // ceil(self._most)
        # Each is rounded up, by less than 1.
        return sum(clause.weight for clause in self._clauses) / (weights - len(self._clauses)) or 1.0

    def _of(self, names: Iterable[str]) -> dict[str, float]:
        of, scores, unit = self._places.of, self._scores, self._unit
        return {name: unit * score for name in names if name in of and (score := scores[of[name]])}

    def _highest(self, count: int) -> dict[str, float]:
        """The `count` highest scores, perhaps with some more."""
        scores, names, unit = self._scores, self._places.names, self._unit
        places: Iterable[int] = highest(in_order(scores)[LANE_BYTES - 1 :: LANE_BYTES], count)
        if len(places) < count:
            places = compress(range(len(scores)), scores)
        return {names[place]: unit * scores[place] for place in places}
