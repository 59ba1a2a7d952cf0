"""One ranking out of two: the words of a query and what they mean (H19).

The words alone miss tools that say the same otherwise, the meaning alone misses names and codes. Each has
its share of the score; and where both together have too little to say, nothing is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from mcp_toolset.catalog.entry import CatalogEntry
from mcp_toolset.catalog.lexical import LexicalScorer

_POOL = 50
_WORDS_SHARE = 0.3
# The share of a query that a tool has to answer to be worth showing for its words alone.
_WORDS_ENOUGH = 0.5
# What scores less than this part of the best is not shown.
_TAIL = 0.5


class Scorer(Protocol):
    """A second opinion on what answers a query, kept in step with the index.

    It is told of each change once, and of removals before additions. What it has no opinion on it leaves
    out: a query that it cannot read gives an empty answer, and the words alone decide.
    """

    @property
    def enough(self) -> float:
        """The score at which this opinion alone makes a tool worth showing."""
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
        """Scores above 0, at most 1: of the `count` best public names, all `among` those given, and of `also`."""
        ...


class Ranking:
    """The ranking by words, joined with a second one if there is one."""

    def __init__(self, scorer: Scorer | None) -> None:
        self._words = LexicalScorer()
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
        if self._scorer is None:
            return self._words.best(query, count, among)
        pool = max(count, _POOL)
        words = self._words.best(query, pool, among)
        meaning = self._scorer.best(query, pool, among, words.keys())
        return _joined(words, meaning) if self._is_enough(words, meaning) else {}

    def _is_enough(self, words: Mapping[str, float], meaning: Mapping[str, float]) -> bool:
        assert self._scorer is not None
        enough = self._scorer.enough
        return any(
            words.get(name, 0.0) / _WORDS_ENOUGH + meaning.get(name, 0.0) / enough >= 1
            for name in words.keys() | meaning.keys()
        )


def _joined(words: Mapping[str, float], meaning: Mapping[str, float]) -> Mapping[str, float]:
    """Both rankings, each by its own best, without the tail."""
    if not words or not meaning:
        return words or meaning
    most_words, most_meaning = max(words.values()), max(meaning.values())
    scores = {
        name: _WORDS_SHARE * words.get(name, 0.0) / most_words
        + (1 - _WORDS_SHARE) * meaning.get(name, 0.0) / most_meaning
        for name in words.keys() | meaning.keys()
    }
    bar = _TAIL * max(scores.values())
    return {name: score for name, score in scores.items() if score >= bar}
