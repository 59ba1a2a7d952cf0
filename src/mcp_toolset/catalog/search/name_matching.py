"""`NameTable`: search by name; a query that is a tool's name, or its beginning, puts that tool first."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.text import folded
from mcp_toolset.catalog.search.vocabulary import SortedWords

PUBLIC_NAME = 1.0
OWN_NAME = 0.97
SPELLED_OTHERWISE = 0.94
BEGINNING = 0.85

_LONGEST_FOLDED = 128
_SHORTEST_BEGINNING = 3
_SPELLINGS = 200


class NameTable:
    """Public names, original names, and both without case and punctuation."""

    def __init__(self) -> None:
        self._entries: dict[str, CatalogEntry] = {}
        self._own: dict[str, list[str]] = {}
        self._spellings: dict[str, list[str]] = {}
        self._in_order = SortedWords(self._spellings.keys())

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Add entries whose public names are not in the table yet."""
        for entry in entries:
            self._entries[entry.public_name] = entry
            self._own.setdefault(entry.definition.name, []).append(entry.public_name)
            for spelling in _spellings(entry):
                self._spellings.setdefault(spelling, []).append(entry.public_name)
                self._in_order.note((spelling,))

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove names, all of which are in the table."""
        for name in public_names:
            entry = self._entries.pop(name)
            _discard(self._own, entry.definition.name, name)
            for spelling in _spellings(entry):
                _discard(self._spellings, spelling, name)
                self._in_order.note((spelling,))

    def matches(self, query: str, *, beginnings: bool) -> dict[str, float]:
        """The public names of tools that the query names, each with the closeness of the match.

        Args:
            query: The query as it was written.
            beginnings: Whether a query that only begins a name counts, too.
        """
        found: dict[str, float] = {}
        spelling = folded(query) if len(query) <= _LONGEST_FOLDED else ""
        if beginnings and len(spelling) >= _SHORTEST_BEGINNING:
            found |= dict.fromkeys(self._beginning_with(spelling), BEGINNING)
        found |= dict.fromkeys(self._spellings.get(spelling, ()), SPELLED_OTHERWISE)
        found |= dict.fromkeys(self._own.get(query, ()) or self._own.get(query.strip(), ()), OWN_NAME)
        if query not in self._entries:
            query = query.strip()
        return found | {query: PUBLIC_NAME} if query in self._entries else found

    def _beginning_with(self, spelling: str) -> Iterable[str]:
        for longer in self._in_order.beginning_with(spelling, _SPELLINGS):
            yield from self._spellings[longer]


def _spellings(entry: CatalogEntry) -> set[str]:
    names = {entry.public_name[:_LONGEST_FOLDED], entry.definition.name[:_LONGEST_FOLDED]}
    return {folded(name) for name in names} - {""}


def _discard(table: dict[str, list[str]], key: str, name: str) -> None:
    table[key].remove(name)
    if not table[key]:
        del table[key]
