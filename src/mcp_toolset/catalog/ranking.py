"""One ranking out of two: the words of a query and what they mean (H19).

The words alone miss tools that say the same otherwise, the meaning alone misses names and codes. Each has
its share of the score; and where both together have too little to say, nothing is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import Any, Protocol

from mcp_toolset.catalog.entry import CatalogEntry
from mcp_toolset.catalog.lexical import LexicalScorer
from mcp_toolset.catalog.postings import WordQuery

_POOL = 100
# How much of a query, by the rarity of its words, a tool must have to be worth showing for its words alone.
_COVERAGE_ENOUGH = 0.6
# What scores less than this part of the best is not shown.
_TAIL = 0.4
_WITNESSES = 5
# What shares no word with the query is shown from this part of what would be enough by itself.
_WORDLESS = 0.7


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


class Ranking:
    """The ranking by words, joined with a second one if there is one."""

    def __init__(self, scorer: Scorer | None, *, numpy: Any = None) -> None:
        """Start empty. `numpy` is the module itself, or `None` to do without it."""
        self._words = LexicalScorer(numpy=numpy)
        self._scorer = scorer

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
        pool = max(count, _POOL)
        words = asked.best(pool, among)
        meaning = self._scorer.best(query, pool, among, words.keys())
        words |= asked.shares(meaning.keys() - words.keys())
        joined = _joined(words, meaning, self._scorer.enough, self._scorer.share)
        return joined if self._is_enough(joined, asked, meaning) else {}

    def _is_enough(self, joined: Mapping[str, float], asked: WordQuery, meaning: Mapping[str, float]) -> bool:
        """Whether one of the best says enough of the query, by its words, its meaning or both together."""
        assert self._scorer is not None
        enough = self._scorer.enough
        best = nsmallest(_WITNESSES, joined, key=lambda name: (-joined[name], name))
        return any(
            asked.coverage(name) / _COVERAGE_ENOUGH + meaning.get(name, 0.0) / enough >= 1 for name in best
        )


def _joined(
    words: Mapping[str, float], meaning: Mapping[str, float], enough: float, share: float
) -> Mapping[str, float]:
    """Both rankings, each by its own best, without the tail.

    A meaning that is weak even at its best is not taken for a strong one.
    """
    if not words and not meaning:
        return {}
    said = (1 - share) / max(words.values(), default=1.0)
    meant = share / max([*meaning.values(), enough])
    least = _WORDLESS * enough
    scores = {name: said * score for name, score in words.items()}
    for name, score in meaning.items():
        if name in words or score >= least:
            scores[name] = scores.get(name, 0.0) + meant * score
    bar = _TAIL * max(scores.values(), default=0.0)
    return {name: score for name, score in scores.items() if score >= bar}
