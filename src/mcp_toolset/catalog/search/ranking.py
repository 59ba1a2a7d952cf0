"""`Ranking`: the ranking by words and the ranking by meaning, fused; `SearchIndex` asks it for every query.

Words alone miss tools that describe the same thing in other words; meaning alone misses names and codes. Each
has its share of the score. If both together say too little about a query, no tool is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import Protocol, runtime_checkable

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.catalog.search.meaning import Weight, fused
from mcp_toolset.catalog.search.postings import WordQuery
from mcp_toolset.errors import DefinitionError

_POOL = 100
# The part of a query, by the rarity of its words, that a tool must have to be shown for its words alone.
_COVERAGE_ENOUGH = 0.6
_CHECKED_FOR_ENOUGH = 5


@runtime_checkable
class Scorer(Protocol):
    """A second ranking, in addition to that by words, of the tools of an index.

    The index reports each change once, removals before additions. A scorer leaves out tools that it cannot
    score; for a query that it cannot read it returns nothing, and the words alone decide.
    """

    @property
    def enough(self) -> float:
        """The score at which this ranking alone makes a tool worth showing."""
        ...

    @property
    def share(self) -> float:
        """The part of the fused score that comes from this ranking, from 0 to 1; the words have the rest."""
        ...

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Index entries whose public names are not indexed yet."""
        ...

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries."""
        ...

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """Scores above 0: of the `count` best public names `among` those given, and of `also`."""
        ...


def require_scorer(scorer: object) -> None:
    """Check what was given as the scorer of a search. Raises `DefinitionError`: it is no ranking."""
    if scorer is None or scorer == "built-in":
        return
    if isinstance(scorer, type) or not isinstance(scorer, Scorer):
        raise DefinitionError(
            f"scorer={scorer!r} is no ranking: give 'built-in' (the default, which searches by words and by "
            "meaning), None (by words alone), or a scorer such as EmbeddingScorer(…)"
        )


@runtime_checkable
class ReadingScorer(Scorer, Protocol):
    """A scorer that must read a query before it can score tools for it, which may take time.

    Attributes:
        patience: How many seconds a search waits for `read` at most.
    """

    patience: float

    def must_read(self, query: str) -> bool:
        """Whether reading the query now would change the answer."""
        ...

    def read(self, query: str) -> None:
        """Read a query, so that `best` can score it; may be called in any thread."""
        ...


class Ranking:
    """The ranking by words, fused with a second one if the index has one."""

    def __init__(self, scorer: Scorer | None) -> None:
        self._words = LexicalScorer()
        self._scorer = scorer

    def knows(self, word: str, hidden: AbstractSet[str] = frozenset()) -> bool:
        """Whether any tool that is not hidden has this word, in any inflection."""
        return self._words.knows(word, hidden)

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Index entries whose public names are not indexed yet."""
        entries = list(entries)
        self._words.add(entries)
        if self._scorer is not None:
            self._scorer.add(entries)

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries."""
        names = list(public_names)
        self._words.remove(names)
        if self._scorer is not None:
            self._scorer.remove(names)

    def best(
        self,
        query: str,
        count: int,
        among: AbstractSet[str] | None = None,
        hidden: AbstractSet[str] = frozenset(),
    ) -> Mapping[str, float]:
        """At least the `count` best public names with scores from 0 to 1; empty if none is worth showing."""
        asked = self._words.read(query, hidden)
        if self._scorer is None:
            return asked.best(count, among)
        pool, scorer = max(count, _POOL), self._scorer
        words = asked.best(pool, among)
        meaning = scorer.best(query, pool, among, words.keys())
        words |= asked.shares(meaning.keys() - words.keys())
        found = fused(words, meaning, Weight(scorer.enough, scorer.share))
        return found if _is_enough(found, asked, meaning, scorer.enough) else {}


def _is_enough(
    found: Mapping[str, float], asked: WordQuery, meaning: Mapping[str, float], enough: float
) -> bool:
    """Whether one of the best tools matches enough of the query, by words, meaning or both."""
    best = nsmallest(_CHECKED_FOR_ENOUGH, found, key=lambda name: (-found[name], name))
    meant = {name: meaning.get(name, 0.0) / enough for name in best}
    if any(share >= 1 for share in meant.values()):
        return True
    return any(asked.coverage(name) / _COVERAGE_ENOUGH + meant[name] >= 1 for name in best)
