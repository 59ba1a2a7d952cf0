"""`fused`: the ranking by words and the ranking by meaning as one; `Blend`: two models of meaning as one.

`Ranking` uses the first for every query, `EmbeddingScorer` the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mcp_toolset.catalog.search.packed_vectors import Cosines

# A tool that scores less than this part of the best score is left out.
_TAIL = 0.4
# A tool that shares no word with the query is shown from this part of `Weight.enough`.
_WORDLESS = 0.7


@dataclass(frozen=True, slots=True)
class Weight:
    """How much the ranking by meaning counts.

    Attributes:
        enough: The cosine at which meaning alone makes a tool worth showing.
        share: The part of the fused score that comes from meaning; the words have the rest.
    """

    enough: float
    share: float


def fused(words: Mapping[str, float], meaning: Mapping[str, float], weight: Weight) -> dict[str, float]:
    """The weighted sum of both rankings, each divided by its best score, without the tail.

    Cosines that are all below `weight.enough` are divided by `weight.enough`, so that they stay weak.
    """
    if not words and not meaning:
        return {}
    per_word = (1 - weight.share) / max(words.values(), default=1.0)
    per_cosine = weight.share / max([*meaning.values(), weight.enough])
    least = _WORDLESS * weight.enough
    scores = {name: per_word * score for name, score in words.items()}
    for name, cosine in meaning.items():
        if name in words or cosine >= least:
            scores[name] = scores.get(name, 0.0) + per_cosine * cosine
    bar = _TAIL * max(scores.values(), default=0.0)
    return {name: score for name, score in scores.items() if score >= bar}


class Blend:
    """The weighted mean of the cosines of two models; see `Similarity`."""

    def __init__(self, one: Cosines, other: Cosines, part: float) -> None:
        """Blend cosines of one scale; `part`, from 0 to 1, is the weight of the first."""
        self._one, self._other = one, other
        self._part, self._rest = part, 1 - part

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """See `Similarity`."""
        names = list(names)
        one, other = self._one.of(names), self._other.of(names)
        return {
            name: self._part * one.get(name, 0.0) + self._rest * other.get(name, 0.0)
            for name in names
            if name in one or name in other
        }

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """See `Similarity`."""
        means = self.of(dict.fromkeys([*self._one.names, *self._other.names]) if among is None else among)
        found = sorted((-mean, name) for name, mean in means.items() if mean > 0)
        return {name: -mean for mean, name in found[:count]}
