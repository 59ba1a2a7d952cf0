"""Two rankings made one: how much a tool answers by its words and by its meaning together.

Each ranking counts by its own best, and the tail of what they make together is left out. `joined` reckons
with names; `ArrayJoin` does the same sums in the same order on numpy arrays, so that both give the same
numbers to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from mcp_toolset.catalog.search.packed_vectors import Likeness
from mcp_toolset.catalog.search.postings import Places, WordQuery, highest

# What scores less than this part of the best is not shown.
_TAIL = 0.4
# What shares no word with the query is shown from this part of what would be enough by itself.
_WORDLESS = 0.7


@dataclass(frozen=True, slots=True)
class Weight:
    """How an opinion is taken.

    Attributes:
        enough: The score at which this opinion alone makes a tool worth showing.
        share: The part of the joined score that is this opinion's; the words have the rest.
    """

    enough: float
    share: float


def joined(words: Mapping[str, float], meaning: Mapping[str, float], weight: Weight) -> dict[str, float]:
    """Both rankings, each by its own best, without the tail.

    A meaning that is weak even at its best is not taken for a strong one.
    """
    if not words and not meaning:
        return {}
    said = (1 - weight.share) / max(words.values(), default=1.0)
    meant = weight.share / max([*meaning.values(), weight.enough])
    least = _WORDLESS * weight.enough
    scores = {name: said * score for name, score in words.items()}
    for name, score in meaning.items():
        if name in words or score >= least:
            scores[name] = scores.get(name, 0.0) + meant * score
    bar = _TAIL * max(scores.values(), default=0.0)
    return {name: score for name, score in scores.items() if score >= bar}


class ArrayJoin:
    """The same by places, without a Python object for any tool that is not shown."""

    def __init__(self, places: Places, numpy: Any) -> None:
        """Join what stands at these places, with the module given."""
        self._places = places
        self._numpy = numpy

    def best(
        self,
        asked: WordQuery,
        likeness: Likeness | None,
        weight: Weight,
        pool: int,
        count: int,
        among: AbstractSet[str] | None,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """The `count` best names with their scores, best first, and the cosines of these.

        Args:
            asked: The query by its words.
            likeness: Its likeness to the tools, reckoned with numpy; `None` if it has no meaning.
            weight: How the likeness is taken.
            pool: How many of the best by each opinion are looked at.
            count: How many names are wanted at most.
            among: The names to choose from; all of them if `None`.
        """
        numpy = self._numpy
        values = None if likeness is None else likeness.by_place(self._places.of, len(self._places.names))
        at = self._looked_at(asked.dense, values, pool, self._places_of(among))
        if likeness is None or values is None:
            meaning = numpy.zeros(len(at))
        else:
            meaning = numpy.maximum(likeness.of_values(values[at]), 0.0)
        scores = self._scores(asked.dense[at] / asked.ceiling, meaning, weight)
        scores[scores < _TAIL * scores.max(initial=0.0)] = 0.0
        kept = highest(numpy, scores, count, self._places.names, at)
        names = self._named(at[kept])
        first = sorted(zip(names, scores[kept].tolist(), strict=True), key=lambda item: (-item[1], item[0]))
        return dict(first), dict(zip(names, meaning[kept].tolist(), strict=True))

    def _places_of(self, names: AbstractSet[str] | None) -> Any:
        if names is None:
            return None
        of = self._places.of
        return self._numpy.array([of[name] for name in names if name in of], dtype=self._numpy.intp)

    def _looked_at(self, words: Any, meaning: Any, pool: int, among: Any) -> Any:
        """The places of the best by either opinion."""
        numpy, names = self._numpy, self._places.names
        marked = numpy.zeros(len(names), dtype=bool)
        for values in (words,) if meaning is None else (words, meaning):
            if among is None:
                marked[highest(numpy, values, pool, names)] = True
            else:
                marked[among[highest(numpy, values[among], pool, names, among)]] = True
        return numpy.flatnonzero(marked)

    def _scores(self, words: Any, meaning: Any, weight: Weight) -> Any:
        said = (1 - weight.share) / (words.max(initial=0.0) or 1.0)
        meant = weight.share / meaning.max(initial=weight.enough)
        counts = (words > 0) | (meaning >= _WORDLESS * weight.enough)
        return said * words + self._numpy.where(counts, meant * meaning, 0.0)

    def _named(self, places: Any) -> list[str]:
        names = self._places.names
        return [names[place] for place in places.tolist()]
