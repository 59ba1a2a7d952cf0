"""One ranking out of two: the words of a query and what they mean.

The words alone miss tools that say the same otherwise, the meaning alone misses names and codes. Each has
its share of the score; and where both together have too little to say, nothing is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import Any, Protocol, runtime_checkable

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.fusion import ArrayJoin, Weight, joined
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.catalog.search.packed_vectors import Likeness
from mcp_toolset.catalog.search.postings import WordQuery

_POOL = 100
# How much of a query, by the rarity of its words, a tool must have to be worth showing for its words alone.
_COVERAGE_ENOUGH = 0.6
_WITNESSES = 5


class Scorer(Protocol):
    """A second opinion on what answers a query, kept in step with the index.

    It is told of each change once, and of removals before additions. What it has no opinion on it leaves
    out: a query that it cannot read gives an empty answer, and the words alone decide.
    """

    @property
    def enough(self) -> float:
        """The score at which this opinion alone makes a tool worth showing."""
        ...

    @property
    def share(self) -> float:
        """The part of the joined score that is this opinion's, from 0 to 1; the words have the rest."""
        ...

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in entries whose public names are not indexed yet."""
        ...

    def remove(self, public_names: Iterable[str]) -> None:
        """Forget entries."""
        ...

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """Scores above 0: of the `count` best public names `among` those given, and of `also`."""
        ...


@runtime_checkable
class ReadingScorer(Scorer, Protocol):
    """A scorer that takes its time with a query: it is read first, and what is not read has no opinion yet.

    Attributes:
        patience: How many seconds a search waits for that at most.
    """

    patience: float

    def must_read(self, query: str) -> bool:
        """Whether reading the query now would make a difference."""
        ...

    def read(self, query: str) -> None:
        """Read a query for `best` to know it; may be called in any thread."""
        ...


@runtime_checkable
class ComparingScorer(Scorer, Protocol):
    """A scorer whose cosines can be joined as they lie, where both it and the index use numpy."""

    @property
    def numpy(self) -> Any:
        """The module it compares with, or `None`."""
        ...

    def compare(self, query: str) -> Likeness | None:
        """The likeness of every tool to a query; `None` if it cannot read it."""
        ...


class Ranking:
    """The ranking by words, joined with a second one if there is one."""

    def __init__(self, scorer: Scorer | None, *, numpy: Any = None) -> None:
        """Start empty. `numpy` is the module itself, or `None` to do without it."""
        self._words = LexicalScorer(numpy=numpy)
        self._scorer = scorer
        self._comparing, self._arrays = None, None
        if numpy is not None and isinstance(scorer, ComparingScorer) and scorer.numpy is not None:
            self._comparing, self._arrays = scorer, ArrayJoin(self._words.places, numpy)

    def knows(self, word: str) -> bool:
        """Whether any tool has this word, in whatever inflection."""
        return word in self._words

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in entries whose public names are not indexed yet."""
        entries = list(entries)
        self._words.add(entries)
        if self._scorer is not None:
            self._scorer.add(entries)

    def remove(self, public_names: Iterable[str]) -> None:
        """Forget entries."""
        names = list(public_names)
        self._words.remove(names)
        if self._scorer is not None:
            self._scorer.remove(names)

    def best(self, query: str, count: int, among: AbstractSet[str] | None = None) -> Mapping[str, float]:
        """At least the `count` best public names with scores from 0 to 1; none if none is worth showing."""
        asked = self._words.read(query)
        if self._scorer is None:
            return asked.best(count, among)
        found, meaning = self._together(self._scorer, asked, query, count, among)
        return found if _is_enough(found, asked, meaning, self._scorer.enough) else {}

    def _together(
        self, scorer: Scorer, asked: WordQuery, query: str, count: int, among: AbstractSet[str] | None
    ) -> tuple[dict[str, float], Mapping[str, float]]:
        """The joined scores of the best, and what the scorer says of them."""
        pool = max(count, _POOL)
        if self._arrays is not None and self._comparing is not None:
            likeness, weight = self._comparing.compare(query), Weight(scorer.enough, scorer.share)
            return self._arrays.best(asked, likeness, weight, pool, max(count, _WITNESSES), among)
        words = asked.best(pool, among)
        meaning = scorer.best(query, pool, among, words.keys())
        words |= asked.shares(meaning.keys() - words.keys())
        return joined(words, meaning, Weight(scorer.enough, scorer.share)), meaning


def _is_enough(
    found: Mapping[str, float], asked: WordQuery, meaning: Mapping[str, float], enough: float
) -> bool:
    """Whether one of the best says enough of the query, by its words, its meaning or both together."""
    best = nsmallest(_WITNESSES, found, key=lambda name: (-found[name], name))
    meant = {name: meaning.get(name, 0.0) / enough for name in best}
    if any(share >= 1 for share in meant.values()):
        return True
    return any(asked.coverage(name) / _COVERAGE_ENOUGH + meant[name] >= 1 for name in best)
