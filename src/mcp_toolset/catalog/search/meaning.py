"""Ranking by meaning: the cosines between a query and what tools say of themselves.

`MeaningScorer` uses the built-in table, which is not read before there is a tool to index; `embedding`
does the same with a sentence model of the host's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, final

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.packed_vectors import Cosines, Lanes, Likeness, numpy_if_present
from mcp_toolset.catalog.search.vectors import WordVectors, built_in
from mcp_toolset.catalog.search.wordpieces import words_of

_QUERY_CHARACTERS = 2_000
_NAME = 128
_DESCRIPTION = 260
_PARAMETERS = 8
_TAGS = 8


def said_of(entry: CatalogEntry, *, stressed: bool = True) -> str:
    """What a tool says of itself, as short as the models that read it were trained on.

    Args:
        entry: The tool.
        stressed: Whether its name is said twice, for a table that only adds words up.
    """
    definition = entry.definition
    own, server = definition.name[:_NAME], (entry.server or "")[:_NAME]
    parameters = [name[:_NAME] for name, _ in islice(entry.parameters(), _PARAMETERS)]
    description = " ".join((definition.description or "")[: 4 * _DESCRIPTION].split())[:_DESCRIPTION]
    said = (
        server,
        own if stressed else "",
        f"{own}:",
        _renaming(entry),
        (definition.title or "")[:_NAME],
        *entry.tags[:_TAGS],
    )
    return " ".join(filter(None, [*said, description, *parameters]))


def _renaming(entry: CatalogEntry) -> str:
    """What the public name says beyond the tool's own name and its server's."""
    known = {*words_of(entry.definition.name[:_NAME]), *words_of((entry.server or "")[:_NAME])}
    return " ".join(word for word in words_of(entry.public_name[:_NAME]) if word not in known)


def opinion(
    likeness: Likeness, count: int, among: AbstractSet[str] | None, also: Iterable[str]
) -> dict[str, float]:
    """The `count` best names, and every one of `also` that has anything in common with the query."""
    asked = likeness.of(also)
    return {name: cosine for name, cosine in asked.items() if cosine > 0} | likeness.best(count, among)


@final
class MeaningScorer:
    """Cosines by a table of word pieces.

    Attributes:
        enough: The cosine at which meaning alone makes a tool worth showing; see `Scorer`.
        share: The part of the score that is the meaning's; see `Scorer`.
    """

    enough = 0.35
    share = 0.7

    def __init__(self, vectors: WordVectors | None = None, *, numpy: Any = None) -> None:
        """Start empty.

        Args:
            vectors: The table; the built-in one if `None`.
            numpy: The module to compare with; `None` takes it if it is installed, `False` does without.
        """
        self._vectors = vectors
        self._numpy = numpy_if_present() if numpy is None else numpy or None
        self._lanes: Lanes | None = None

    @property
    def numpy(self) -> Any:
        """The module it compares with, or `None`."""
        return self._numpy

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in entries whose public names are not indexed yet."""
        for entry in entries:
            vector = self._table().encode(said_of(entry))
            if vector is not None:
                self._held().put(entry.public_name, vector)
        if self._vectors is not None:
            self._vectors.forget()

    def remove(self, public_names: Iterable[str]) -> None:
        """Forget entries; names that are not held are passed over."""
        if self._lanes is not None:
            for name in public_names:
                self._lanes.drop(name)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """The names that mean most nearly what the query does, and the cosines of those in `also`."""
        cosines = self.compare(query)
        return {} if cosines is None else opinion(cosines, count, among, also)

    def compare(self, query: str) -> Cosines | None:
        """The likeness of every tool to the query; `None` if the table cannot tell."""
        if not self._lanes:
            return None
        vector = self._table().encode(query[:_QUERY_CHARACTERS], wordlike=True)
        return None if vector is None else self._lanes.cosines(vector)

    def _table(self) -> WordVectors:
        if self._vectors is None:
            self._vectors = built_in()
        return self._vectors

    def _held(self) -> Lanes:
        if self._lanes is None:
            self._lanes = Lanes(self._table().dimensions, numpy=self._numpy)
        return self._lanes
