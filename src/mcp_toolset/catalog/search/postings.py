"""`Posting` and `PostingTable`: the tools that have a term, and how much it counts at each.

Tools have places, small whole numbers, and impacts are whole numbers too, so that a posting is two flat
arrays of four bytes a tool. Tools of a file have the first places, and their part of a posting is the file's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.stored.base import IndexBase, TermsBase

from mcp_toolset._records import dataclass

# Up to this number of tools are removed one by one; for more, writing the posting anew is faster.
_FEW = 8


class Places:
    """A place for each public name; places of removed names are reused, but not those in a file.

    Attributes:
        names: The name at each place.
        of: The place of each name.
        base: How many places are of the file.
        gone: The places of the file whose names were removed.
    """

    def __init__(self, base: IndexBase | None = None) -> None:
        self.names: list[str] = [] if base is None else [*base.names]
        self.of: dict[str, int] = {} if base is None else base.places.copy()
        self.base = len(self.names)
        self.gone: set[int] = set()
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
        """Free the place of a name; return it."""
        place = self.of.pop(name)
        if place < self.base:
            self.gone.add(place)
        else:
            self._vacant.append(place)
        return place

    def at(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.of[name] for name in names if name in self.of)


IMPACT: Final = 1 << 14
"""The whole number that stands for an impact of 1."""

Part: TypeAlias = "tuple[array[int], array[int]]"
"""Places, and the impact of a term at each of them."""


def _numbers() -> array[int]:
    return array("i")


class Column(Protocol):
    """A posting in the form in which `WordQuery` adds it up."""

    def lanes(self) -> int: ...

    def change(self, place: int, impact: int) -> bool:
        """Note that the impact at a place grew by so much; return whether the column is worth keeping."""
        ...


@dataclass(slots=True, eq=False)
class Posting:
    """The tools that have one term.

    Attributes:
        term: The term.
        places: The places of tools, unordered; those in a file are not among them.
        impacts: The impact of the term at each of `places`.
        stored: What a file has, places ascending; also of tools that were removed since.
        lost: How many of the tools in `stored` were removed.
        column: The same as a column, while `ImpactColumns` holds it.
    """

    term: str
    places: array[int] = field(default_factory=_numbers)
    impacts: array[int] = field(default_factory=_numbers)
    stored: Part | None = None
    lost: int = 0
    column: Column | None = None

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
        """Whether the tool at a place of the file has the term."""
        places = () if self.stored is None else self.stored[0]
        at = bisect_left(places, place)
        return places[at : at + 1] == array("i", [place]) if places else False

    def drop(self, places: AbstractSet[int]) -> None:
        """Remove tools that are in the posting and not in the file."""
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
        """Those of some terms that some tool has."""
        base = () if self._base is None else self._base
        return {term for term in terms if (term in self._held or term in base) and term in self}

    def get(self, term: str) -> Posting | None:
        found = self._held.get(term)
        if found is None and self._base is not None and self._left(term):
            lost = self._lost.pop(term, 0)
            found = self._held[term] = Posting(term, stored=self._base.posting(term), lost=lost)
        return found or None

    def parts(self, term: str) -> Iterable[Part]:
        """The parts of a term's posting; a file's is not held in memory for it."""
        held = self._held.get(term)
        if held is not None or self._base is None:
            return () if held is None else held.parts()
        return (self._base.posting(term),)

    def put(self, term: str, place: int, impact: int) -> Posting:
        """Note that a tool has a term."""
        posting = self.get(term)
        if posting is None:
            posting = self._held.setdefault(term, Posting(term))
        posting.put(place, impact)
        return posting

    def leave(self, posting: Posting, places: AbstractSet[int]) -> None:
        """Note that tools, none of them of the file, are gone."""
        posting.drop(places)
        if not posting and posting.stored is None:
            del self._held[posting.term]

    def lose(self, term: str) -> None:
        """Note that a tool of the file that has this term is gone."""
        held = self._held.get(term)
        if held is None:
            self._lost[term] = self._lost.get(term, 0) + 1
        else:
            held.lost += 1

    def _left(self, term: str) -> int:
        """How many tools of the file have a term of which no posting is held."""
        base = self._base
        return base.count(term) - self._lost.get(term, 0) if base is not None and term in base else 0
