"""`Heard`: one text as the ranking by words and the ranking by meaning hear it, and their scores fused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.columns.word_query import WordQuery

# A tool that scores less than this part of the best score is left out.
_TAIL = 0.4
# A tool that shares no word with the query is shown from this part of the cosine that is enough.
_WORDLESS = 0.7
# The part of a query, by the rarity of its words, that a tool has that is worth showing for its words alone.
_COVERED = 0.6
_CHECKED = 5


@dataclass(frozen=True, slots=True)
class Heard:
    """A query or a clause of one, and what both rankings found for it.

    Attributes:
        asked: The text as its words.
        words: The share of the text's words that a tool has, by public name.
        meaning: The cosine of a tool with the text, by public name.
        enough: The cosine at which meaning alone makes a tool worth showing.
    """

    asked: WordQuery
    words: Mapping[str, float]
    meaning: Mapping[str, float]
    enough: float

    @property
    def nearest(self) -> float:
        """The highest cosine, or `enough` if all are lower, so that weak cosines stay weak."""
        return max([*self.meaning.values(), self.enough])

    def fused(self, share: float, nearest: float) -> dict[str, float]:
        """The weighted sum of both rankings: words divided by their best, cosines by `nearest`.

        `share` is the part of the sum that comes from meaning; the words have the rest.
        """
        per_word = (1 - share) / max(self.words.values(), default=1.0)
        per_cosine = share / nearest
        least = _WORDLESS * self.enough
        scores = {name: per_word * score for name, score in self.words.items()}
        for name, cosine in self.meaning.items():
            if name in self.words or cosine >= least:
                scores[name] = scores.get(name, 0.0) + per_cosine * cosine
        return scores

    def fit(self, scores: Mapping[str, float]) -> float:
        """How well the best tools fit the text, by words and meaning together: 1 is enough."""
        bar = min(nlargest(_CHECKED, scores.values()), default=0.0)
        best = sorted((-score, name) for name, score in scores.items() if score >= bar)[:_CHECKED]
        return max((self._fit_of(name) for _, name in best), default=0.0)

    def _fit_of(self, name: str) -> float:
        cosine = max(0.0, self.meaning.get(name, 0.0))
        return self.asked.coverage(name) / _COVERED + cosine / self.enough


def beside(whole: Mapping[str, float], clauses: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each tool's score for the whole query and its best score for a clause of it."""
    best: dict[str, float] = {}
    for scores in clauses:
        for name, score in scores.items():
            best[name] = max(score, best.get(name, 0.0))
    return {name: (whole.get(name, 0.0) + best.get(name, 0.0)) / 2 for name in whole.keys() | best.keys()}


def without_tail(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores that are not far below the best."""
    bar = _TAIL * max(scores.values(), default=0.0)
    return {name: score for name, score in scores.items() if score >= bar}
