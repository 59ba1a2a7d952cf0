"""`MeaningScorer`: ranking by cosine similarity of a query and the text of each tool.

`SearchIndex` uses it by default. It embeds with the built-in table of word vectors, which is read from disk
when the first tool is indexed. `EmbeddingScorer` does the same with a sentence model of the host's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import final

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import VectorRows
from mcp_toolset.catalog.search.text import STOP_WORDS
from mcp_toolset.catalog.search.vectors import (
    Cosines,
    PackedVectors,
    WordVectors,
    built_in,
    is_latin,
    words_of,
)


class Blend:
    """The weighted mean of the cosines of two models; see `Similarity`."""

    def __init__(self, one: Cosines, other: Cosines, part: float) -> None:
        self._one, self._other = one, other
        self._part, self._rest = part, 1 - part

    def of(self, names: Iterable[str]) -> dict[str, float]:
        names = list(names)
        one, other = self._one.of(names), self._other.of(names)
        return {
            name: self._part * one.get(name, 0.0) + self._rest * other.get(name, 0.0)
            for name in names
            if name in one or name in other
        }

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        means = self.of(dict.fromkeys([*self._one.names, *self._other.names]) if among is None else among)
        found = sorted((-mean, name) for name, mean in means.items() if mean > 0)
        return {name: -mean for mean, name in found[:count]}


_QUERY_CHARACTERS = 2_000
_NAME = 128
_DESCRIPTION = 260
_PARAMETERS = 8
_TAGS = 8


def text_of(entry: CatalogEntry, *, name_twice: bool = True) -> str:
    """The text of a tool that is embedded; `name_twice` is for a model that only adds words up."""
    definition = entry.definition
    own, server = definition.name[:_NAME], (entry.server or "")[:_NAME]
    parameters = [name[:_NAME] for name, _ in islice(entry.parameters(), _PARAMETERS)]
    description = " ".join((definition.description or "")[: 4 * _DESCRIPTION].split())[:_DESCRIPTION]
    parts = (
        server,
        own if name_twice else "",
        f"{own}:",
        _renaming(entry),
        (definition.title or "")[:_NAME],
        *entry.tags[:_TAGS],
    )
    return " ".join(filter(None, [*parts, description, *parameters]))


def _renaming(entry: CatalogEntry) -> str:
    """The words of the public name that are neither in the tool's own name nor in its server's."""
    known = {*words_of(entry.definition.name[:_NAME]), *words_of((entry.server or "")[:_NAME])}
    return " ".join(word for word in words_of(entry.public_name[:_NAME]) if word not in known)


def _telling(query: str) -> str:
    """A query without stop words and numbers, unless it has nothing else: they blur the rest."""
    said = words_of(query)
    return " ".join(word for word in said if word not in STOP_WORDS and not word.isdigit()) or query


@final
class MeaningScorer:
    """Scores tools by the cosine of their word-piece vectors with the query's.

    Attributes:
        enough: The cosine at which meaning alone makes a tool worth showing; see `Scorer`.
        share: The part of the score that comes from meaning; see `Scorer`.
    """

    enough = 0.35
    share = 0.75

    def __init__(self, vectors: WordVectors | None = None) -> None:
        """Start empty.

        Args:
            vectors: The table; the built-in one if `None`.
        """
        self._vectors = vectors
        self._packed: PackedVectors | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether its table is the table of the package."""
        return self._vectors is None or self._vectors is built_in()

    def rest_on(self, base: VectorRows) -> None:
        """Begin with the vectors of a file; this scorer is empty so far."""
        self._packed = PackedVectors(built_in().dimensions, base)

    def row(self, name: str) -> bytes | None:
        """The vector of a tool, as a file holds it."""
        return None if self._packed is None else self._packed.row(name)

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Index entries whose public names are not indexed yet."""
        for entry in entries:
            vector = self._table().encode(text_of(entry))
            if vector is None:
                continue
            if self._packed is None:
                self._packed = PackedVectors(self._table().dimensions)
            self._packed.put(entry.public_name, vector)
        if self._vectors is not None:
            self._vectors.forget()

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries; names that are not indexed are ignored."""
        if self._packed is not None:
            for name in public_names:
                self._packed.drop(name)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """The cosines of the names closest in meaning to the query, and of those in `also`."""
        vector, packed = self._read(query), self._packed
        return {} if vector is None or packed is None else packed.nearest(vector, count, among, also)

    def compare(self, query: str, among: AbstractSet[str] | None = None) -> Cosines | None:
        """The similarity of every tool to the query; `None` if the table cannot read it."""
        vector, packed = self._read(query), self._packed
        return None if vector is None or packed is None else packed.cosines(vector, among=among)

    def _read(self, query: str) -> Sequence[int] | None:
        """The vector of a query; `None` if there is nothing to compare it with."""
        query = query[:_QUERY_CHARACTERS]
        if not self._packed or not is_latin(query):
            return None
        return self._table().encode(_telling(query), wordlike=True)

    def _table(self) -> WordVectors:
        if self._vectors is None:
            self._vectors = built_in()
        return self._vectors
