"""`NameTable`: search by name; `Matcher`: tools that the query names come first, then what ranking finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import IndexBase
from mcp_toolset.catalog.search.ranking import Ranked, Ranking, Scorer
from mcp_toolset.catalog.search.text import folded, is_one_word
from mcp_toolset.catalog.search.vocabulary import SortedWords

PUBLIC_NAME = 1.0
OWN_NAME = 0.97
SPELLED_OTHERWISE = 0.94
BEGINNING = 0.85

_RANKED_BELOW = 0.8
_WITHIN_MATCH = 0.02
_LONGEST_FOLDED = 128
_SHORTEST_BEGINNING = 3
_SPELLINGS = 200


class NameTable:
    """Public names, original names, and both without case and punctuation."""

    def __init__(self, base: IndexBase | None = None) -> None:
        self._base = base
        self._gone: set[int] = set()
        self._entries: dict[str, CatalogEntry] = {}
        self._own: dict[str, list[str]] = {}
        self._spellings: dict[str, list[str]] = {}
        self._in_order = SortedWords(self._spellings.keys())

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        for entry in entries:
            self._entries[entry.public_name] = entry
            self._own.setdefault(entry.definition.name, []).append(entry.public_name)
            for spelling in spellings(entry.public_name, entry.definition.name):
                self._spellings.setdefault(spelling, []).append(entry.public_name)
                self._in_order.note((spelling,))

    def remove(self, public_names: Iterable[str]) -> None:
        for name in public_names:
            entry = self._entries.pop(name, None)
            if entry is None:
                self._gone.add(self._stored(name))
                continue
            _discard(self._own, entry.definition.name, name)
            for spelling in spellings(name, entry.definition.name):
                _discard(self._spellings, spelling, name)
                self._in_order.note((spelling,))

    def matches(self, query: str, *, beginnings: bool) -> dict[str, float]:
        """The public names that the query names (or begins: `beginnings`), each with the closeness."""
        found: dict[str, float] = {}
        spelling = folded(query) if len(query) <= _LONGEST_FOLDED else ""
        if beginnings and len(spelling) >= _SHORTEST_BEGINNING:
            found |= dict.fromkeys(self._beginning_with(spelling), BEGINNING)
        found |= dict.fromkeys(self._spelled(spelling), SPELLED_OTHERWISE)
        found |= dict.fromkeys(self._called(query) or self._called(query.strip()), OWN_NAME)
        if not self._has(query):
            query = query.strip()
        return found | {query: PUBLIC_NAME} if self._has(query) else found

    def _beginning_with(self, spelling: str) -> Iterable[str]:
        found = {
            longer: [*self._spellings[longer]]
            for longer in self._in_order.beginning_with(spelling, _SPELLINGS)
        }
        if self._base is not None:
            every = self._base.spellings.beginning_with(spelling)
            stored = ((longer, names) for longer, tools in every if (names := self._left(tools)))
            for longer, names in islice(stored, _SPELLINGS):
                found.setdefault(longer, []).extend(names)
        for longer in sorted(found)[:_SPELLINGS]:
            yield from found[longer]

    def _spelled(self, spelling: str) -> list[str]:
        stored = [] if self._base is None else self._left(self._base.spellings.of(spelling))
        return stored + self._spellings.get(spelling, [])

    def _called(self, own: str) -> list[str]:
        stored = [] if self._base is None else self._left(self._base.own_names.of(own))
        return stored + self._own.get(own, [])

    def _has(self, name: str) -> bool:
        at = self._stored(name)
        return name in self._entries or (at >= 0 and at not in self._gone)

    def _stored(self, name: str) -> int:
        return -1 if self._base is None else self._base.places.get(name, -1)

    def _left(self, tools: Iterable[int]) -> list[str]:
        return [] if self._base is None else [self._base.names[at] for at in tools if at not in self._gone]


class Matcher:
    """The tools that a query names, then those that the ranking finds."""

    def __init__(self, scorer: Scorer | None) -> None:
        self._names = NameTable()
        self.ranking = Ranking(scorer)

    def rest_on(self, base: IndexBase) -> None:
        self._names = NameTable(base)
        self.ranking.rest_on(base)

    def add(self, entries: Sequence[CatalogEntry]) -> None:
        self._names.add(entries)
        self.ranking.add(entries)

    def remove(self, public_names: Sequence[str]) -> None:
        self._names.remove(public_names)
        self.ranking.remove(public_names)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None, hidden: AbstractSet[str]
    ) -> Ranked:
        is_known = is_one_word(query) and self.ranking.knows(query, hidden)
        named = self._names.matches(query, beginnings=not is_known)
        if among is not None:
            named = {name: closeness for name, closeness in named.items() if name in among}
        ranked = self.ranking.best(query, count, among, hidden)
        scores = {name: _RANKED_BELOW * score for name, score in ranked.scores.items()}
        if named:
            within = self.ranking.best(query, len(named), named.keys(), hidden).scores
            scores |= {name: _placed(closeness, within.get(name, 0.0)) for name, closeness in named.items()}
        return Ranked(scores, ranked.fits or bool(named))


def _placed(closeness: float, score: float) -> float:
    """The score of a tool that the query names: the ranking decides among names that are equally close."""
    return closeness if closeness == 1 else closeness + _WITHIN_MATCH * score


def spellings(public_name: str, own_name: str) -> set[str]:
    return {folded(name[:_LONGEST_FOLDED]) for name in (public_name, own_name)} - {""}


def _discard(table: dict[str, list[str]], key: str, name: str) -> None:
    table[key].remove(name)
    if not table[key]:
        del table[key]
