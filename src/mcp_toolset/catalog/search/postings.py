"""`Posting` and `PostingTable`: the tools that have a term, and how much it counts at each.

Tools have places, small whole numbers, and impacts are whole numbers too, so that a posting is two flat
arrays of four bytes a tool. Tools of a file have the first places, and their part of a posting is the file's.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cached_property
from itertools import compress
from math import ceil
from typing import Final, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.index_file import IndexBase, TermsBase

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


# Up to this number of tools are removed one by one; for more, writing the posting anew is faster.
_FEW = 8


class Places:
    """A place for each public name; places of removed names are reused, but not those in a file."""

    def __init__(self, base: IndexBase | None = None) -> None:
        self.names: list[str] = [] if base is None else [*base.names]  # the name at each place
        self.of: dict[str, int] = {} if base is None else base.places.copy()  # the place of each name
        self.base = len(self.names)  # how many places are of the file
        self.gone: set[int] = set()  # the places of the file whose names were removed
        self._vacant: list[int] = []

    def take(self, name: str) -> int:
        if self._vacant:
            place = self._vacant.pop()
            self.names[place] = name
        else:
            place = len(self.names)
            self.names.append(name)
        self.of[name] = place
        return place

    def free(self, name: str) -> int:
        place = self.of.pop(name)
        if place < self.base:
            self.gone.add(place)
        else:
            self._vacant.append(place)
        return place

    def at(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.of[name] for name in names if name in self.of)


IMPACT: Final = 1 << 14  # the whole number that stands for an impact of 1
Part: TypeAlias = "tuple[array[int], array[int]]"  # places, and the impact of a term at each of them


def _numbers() -> array[int]:
    return array("i")


@dataclass(slots=True, eq=False)
class Posting:
    """The tools that have one term."""

    term: str  # the term
    places: array[int] = field(default_factory=_numbers)  # unordered; without those of a file
    impacts: array[int] = field(default_factory=_numbers)  # the impact of the term at each of `places`
    stored: Part | None = None  # what a file has, places ascending; also of tools that were removed since
    lost: int = 0  # how many of the tools in `stored` were removed
    column: ImpactColumn | None = None  # the same as a column, while `ImpactColumns` holds it

    def __len__(self) -> int:
        return len(self.places) + (0 if self.stored is None else len(self.stored[0]) - self.lost)

    def put(self, place: int, impact: int) -> None:
        self.places.append(place)
        self.impacts.append(impact)
        self._change(place, impact)

    def parts(self) -> Iterator[Part]:
        """What is added up; a place is in one part only, and may be one of `Places.gone`."""
        if self.stored is not None:
            yield self.stored
        if self.places:
            yield self.places, self.impacts

    def has_stored(self, place: int) -> bool:
        places = () if self.stored is None else self.stored[0]
        at = bisect_left(places, place)
        return places[at : at + 1] == array("i", [place]) if places else False

    def drop(self, places: AbstractSet[int]) -> None:
        if len(places) <= _FEW:
            for place in places:
                self._drop_one(place)
        else:
            both = [pair for pair in zip(self.places, self.impacts, strict=True) if pair[0] not in places]
            self.places = array("i", [place for place, _ in both])
            self.impacts = array("i", [impact for _, impact in both])
            self.column = None

    def _drop_one(self, place: int) -> None:
        at = _at(self.places, place)
        self._change(place, -self.impacts[at])
        last, impact = self.places.pop(), self.impacts.pop()
        if last != place:
            self.places[at], self.impacts[at] = last, impact

    def _change(self, place: int, impact: int) -> None:
        if self.column is not None and not self.column.change(place, impact):
            self.column = None


def _at(numbers: array[int], place: int) -> int:
    """Where a place that is in the posting stands; its bytes are found at the speed of memory."""
    every, wanted, size = numbers.tobytes(), array("i", (place,)).tobytes(), numbers.itemsize
    at = every.index(wanted)
    while at % size:
        at = every.index(wanted, at + 1)
    return at // size


class PostingTable:
    """The posting of each term that some tool has."""

    def __init__(self, base: TermsBase | None = None) -> None:
        self._held: dict[str, Posting] = {}
        self._base = base
        self._lost: dict[str, int] = {}

    def __contains__(self, term: object) -> bool:
        held = self._held.get(cast("str", term))
        return bool(self._left(cast("str", term)) if held is None else held)

    def __iter__(self) -> Iterator[str]:
        if self._base is not None:
            yield from (term for term in self._base.terms if term in self)
        yield from (term for term in self._held if self._base is None or term not in self._base)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __and__(self, terms: AbstractSet[str]) -> set[str]:
        base = () if self._base is None else self._base
        return {term for term in terms if (term in self._held or term in base) and term in self}

    def get(self, term: str) -> Posting | None:
        found = self._held.get(term)
        if found is None and self._base is not None and self._left(term):
            lost = self._lost.pop(term, 0)
            found = self._held[term] = Posting(term, stored=self._base.posting(term), lost=lost)
        return found or None

    def parts(self, term: str) -> Iterable[Part]:
        held = self._held.get(term)
        if held is not None or self._base is None:
            return () if held is None else held.parts()
        return (self._base.posting(term),)

    def put(self, term: str, place: int, impact: int) -> Posting:
        posting = self.get(term)
        if posting is None:
            posting = self._held.setdefault(term, Posting(term))
        posting.put(place, impact)
        return posting

    def leave(self, posting: Posting, places: AbstractSet[int]) -> None:
        posting.drop(places)
        if not posting and posting.stored is None:
            del self._held[posting.term]

    def lose(self, term: str) -> None:
        held = self._held.get(term)
        if held is None:
            self._lost[term] = self._lost.get(term, 0) + 1
        else:
            held.lost += 1

    def _left(self, term: str) -> int:
        base = self._base
        return base.count(term) - self._lost.get(term, 0) if base is not None and term in base else 0


LANE_BYTES: Final = 4  # how much of a column belongs to each place

# A term that one tool in so many has is common.
_COMMON = 64
# All columns together have at most so many numbers, but a few columns there always are.
_NUMBERS = 1 << 19
_LEAST, _MOST = 24, 256
# With more changes than this a column is made anew.
_FEW_CHANGES = 64


class ImpactColumn:
    """The impact of one term at each place: thirty-two bits a place, 0 where the term is not."""

    def __init__(self, posting: Posting, size: int) -> None:
        by_place = array("I", bytes(LANE_BYTES * size))
        for places, impacts in posting.parts():
            for place, impact in zip(places, impacts, strict=True):
                by_place[place] = impact
        self._lanes = int.from_bytes(in_order(by_place), "little")
        self._changes: list[tuple[int, int]] = []

    def change(self, place: int, impact: int) -> bool:
        self._changes.append((place, impact))
        return len(self._changes) <= _FEW_CHANGES

    def lanes(self) -> int:
        for place, impact in self._changes:
            self._lanes += impact << (8 * LANE_BYTES * place)
        self._changes.clear()
        return self._lanes


def in_order(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class ImpactColumns:
    """The columns of the common terms that were asked for last."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._held: dict[Posting, None] = {}

    def of(self, posting: Posting) -> ImpactColumn | None:
        size = len(self._places.names)
        if _COMMON * len(posting) < size:
            return None
        self._held.pop(posting, None)
        self._held[posting] = None
        if posting.column is None:
            posting.column = ImpactColumn(posting, size)
            if len(self._held) > max(_LEAST, min(_MOST, _NUMBERS // size)):
                oldest = next(iter(self._held))
                del self._held[oldest]
                oldest.column = None
        return posting.column


_LANE_MOST = (1 << 8 * LANE_BYTES) - 1


@dataclass(frozen=True, slots=True)
class Clause:
    """One term of a query: its weight and its posting."""

    weight: float
    posting: Posting


class WordQuery:
    """A query as its terms, heaviest first; valid until the index changes.

    `ceiling` is the score of a perfect match, `telling` the number of telling words: one that a single tool
    has counts as 1, one that all tools have as nearly nothing.
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
        self._clauses = clauses
        self._most = most
        self._places = places
        self._held = held
        self._columns = columns
        self.telling = telling
        self.ceiling = most * (sum(clause.weight for clause in clauses) + unknown) or 1.0

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """The best public names, best first, with the share of the query that each matches (0 to 1)."""
        scores = self._highest(count) if among is None else self._of(among)
        first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
        return {name: score / self.ceiling for name, score in first}

    def shares(self, names: Iterable[str]) -> dict[str, float]:
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
        scores, names, unit = self._scores, self._places.names, self._unit
        places: Iterable[int] = highest(in_order(scores)[LANE_BYTES - 1 :: LANE_BYTES], count)
        if len(places) < count:
            places = compress(range(len(scores)), scores)
        return {names[place]: unit * scores[place] for place in places}
