"""Ranking by words: BM25F over fields, on postings that are kept per tool (H19, H20).

The impact of a term on a tool depends on that tool alone: the mean lengths of fields are constants, not
those of the catalog at hand. A changed tool therefore touches its own postings and no others, and an
index that grew step by step equals one that was built at once. Only the rarity of a term depends on the
catalog, and that is read off when a query comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

from mcp_toolset.catalog.aliases import ALIASES
from mcp_toolset.catalog.entry import CatalogEntry
from mcp_toolset.catalog.text import STOP_WORDS, Tokenizer, runs, stem, words
from mcp_toolset.catalog.vocabulary import Vocabulary

_FIELD_CHARACTERS = 8_000
_QUERY_CHARACTERS = 2_000
_QUERY_WORDS = 64
_CORRECTIONS = 8
_LONG_POSTING = 100
_SHORT = 0.25
# Sums in another order differ in the last digits; a bound must not cut a tie because of that.
_ROUNDING = 1 - 1e-9


@dataclass(frozen=True)
class Field:
    """How much one field of a tool counts.

    Attributes:
        weight: What one occurrence of a term counts.
        mean_length: The usual number of terms; longer fields count less.
        slope: How strongly length counts: 0 not at all, 1 fully.
    """

    weight: float
    mean_length: float
    slope: float

    def once_in(self, length: int) -> float:
        """What one occurrence counts in a field of so many terms; very short is no better than short."""
        relative = max(length / self.mean_length, _SHORT)
        return self.weight / (1 - self.slope + self.slope * relative)


@dataclass(frozen=True)
class Weights:
    """All that can be tuned. The defaults were tuned on the agent queries of LiveMCPBench alone."""

    name: Field = Field(2.0, 4, 0.3)
    title: Field = Field(1.0, 4, 0.3)
    description: Field = Field(1.0, 40, 0.6)
    server: Field = Field(1.0, 3, 0.3)
    tags: Field = Field(1.0, 4, 0.3)
    parameter_names: Field = Field(0.5, 8, 0.75)
    parameter_descriptions: Field = Field(0.5, 40, 0.75)
    saturation: float = 1.5
    alias: float = 0.3
    correction: float = 0.6
    compound: float = 0.5


@dataclass(slots=True)
class _Posting:
    """The impact of one term on each tool that has it. `peak` is never below the highest of them."""

    impacts: dict[str, float] = field(default_factory=dict[str, float])
    peak: float = 0.0


@dataclass(frozen=True, slots=True)
class _Clause:
    """One term of a query: how much it counts here, and where it stands."""

    term: str
    weight: float
    posting: _Posting


class WordQuery:
    """A query as its terms, heaviest first; it holds for as long as the index does not change."""

    def __init__(self, clauses: Sequence[_Clause], unknown: float, most: float) -> None:
        self._clauses = clauses
        self._most = most
        self._ceiling = most * (sum(clause.weight for clause in clauses) + unknown)

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """The best public names, best first, with the share of the query that each answers (0 to 1).

        Args:
            count: How many names are wanted at most; 1 or more.
            among: The public names to choose from; all of them if `None`.
        """
        scores = _top(self._clauses, count, among)
        if len(scores) > count:
            last = heapq.nlargest(count, scores.values())[-1]
            scores = {name: score for name, score in scores.items() if score >= last}
        first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
        return {name: score / self._ceiling for name, score in first}

    def shares(self, names: Iterable[str]) -> dict[str, float]:
        """The share of the query that each of these names answers, if it answers any of it."""
        scores: dict[str, float] = {}
        wanted = frozenset(names)
        for clause in self._clauses:
            _take_in(clause, scores, wanted)
        return {name: score / self._ceiling for name, score in scores.items()}

    def coverage(self, name: str) -> float:
        """How much of the query a name has at all, wherever it stands: 0 to 1, by the rarity of the terms."""
        had = sum(clause.weight for clause in self._clauses if name in clause.posting.impacts)
        return had * self._most / self._ceiling if had else 0.0


class LexicalScorer:
    """BM25F over the fields of catalog entries, with aliases and correction of unknown words."""

    def __init__(self, weights: Weights | None = None) -> None:
        self._weights = weights or Weights()
        self._tokenizer = Tokenizer()
        self._postings: dict[str, _Posting] = {}
        self._vocabulary = Vocabulary(self._postings.keys())
        self._terms: dict[str, tuple[str, ...]] = {}

    def __contains__(self, word: str) -> bool:
        """Whether any tool has this word, in whatever inflection."""
        return stem(word) in self._postings

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in entries whose public names are not indexed yet."""
        same: dict[float, float] = {}
        for entry in entries:
            impacts = self._impacts(entry)
            self._terms[entry.public_name] = tuple(impacts)
            for term, impact in impacts.items():
                # One object for all equal numbers: there are few of them, and they are a third of the memory.
                impact = same.setdefault(impact, impact)
                posting = self._postings.get(term) or self._new_posting(term)
                posting.impacts[entry.public_name] = impact
                posting.peak = max(posting.peak, impact)
        self._tokenizer.forget()
        self._vocabulary.forget_order()

    def remove(self, public_names: Iterable[str]) -> None:
        """Forget entries; names that are not indexed are passed over."""
        for name in public_names:
            for term in self._terms.pop(name, ()):
                impacts = self._postings[term].impacts
                del impacts[name]
                if not impacts:
                    del self._postings[term]
        self._vocabulary.forget_order()

    def best(self, query: str, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """What `read(query).best(count, among)` gives."""
        return self.read(query).best(count, among)

    def read(self, query: str) -> WordQuery:
        """Take a query in: any text, read literally, and only its first part if it is very long (F36)."""
        return WordQuery(*self._clauses(self._wanted(query)), self._weights.saturation + 1)

    def _new_posting(self, term: str) -> _Posting:
        posting = self._postings[term] = _Posting()
        return posting

    def _impacts(self, entry: CatalogEntry) -> dict[str, float]:
        weighted: dict[str, float] = {}
        for measure, terms in self._fields(entry):
            once = measure.once_in(len(terms))
            for term in terms:
                weighted[term] = weighted.get(term, 0.0) + once
        k = self._weights.saturation
        return {term: weight * (k + 1) / (k + weight) for term, weight in weighted.items()}

    def _fields(self, entry: CatalogEntry) -> Iterator[tuple[Field, list[str]]]:
        weights, definition, read = self._weights, entry.definition, self._read
        parameters = list(entry.parameters())
        name, server = _name_terms(definition.name), read(entry.server or "")
        yield weights.name, name + _renaming(entry, {*name, *server})
        yield weights.title, read(definition.title or "")
        yield weights.description, read(definition.description or "")
        yield weights.server, server
        yield weights.tags, read(" ".join(entry.tags))
        yield weights.parameter_names, read(" ".join(name for name, _ in parameters))
        yield weights.parameter_descriptions, read("\n".join(described for _, described in parameters))

    def _read(self, text: str) -> list[str]:
        return self._tokenizer.terms(text[:_FIELD_CHARACTERS])

    def _wanted(self, query: str) -> dict[str, float]:
        """The terms of a query, known here or not, and what each counts before its rarity."""
        spoken = _words_of(query)
        wanted = dict.fromkeys(map(stem, spoken), 1.0)
        for term in [term for term in wanted if term not in self._postings][:_CORRECTIONS]:
            nearest = self._vocabulary.nearest(term)
            if nearest:
                del wanted[term]
            self._offer(wanted, nearest, self._weights.correction)
        self._offer(wanted, (stem(one + other) for one, other in pairwise(spoken)), self._weights.compound)
        for term in map(stem, spoken):
            others = [other for other in ALIASES.get(term, ()) if other in self._postings]
            if others and term not in self._postings:
                wanted.pop(term, None)
            self._offer(wanted, others, self._weights.alias)
        return wanted

    def _offer(self, wanted: dict[str, float], terms: Iterable[str], weight: float) -> None:
        for term in terms:
            if term in self._postings:
                wanted[term] = max(weight, wanted.get(term, 0.0))

    def _clauses(self, wanted: Mapping[str, float]) -> tuple[list[_Clause], float]:
        """The known terms, heaviest first, and the weight of the unknown ones together."""
        total, unknown = len(self._terms), 0.0
        clauses: list[_Clause] = []
        for term, weight in wanted.items():
            posting = self._postings.get(term)
            having = len(posting.impacts) if posting else 0
            weight *= log(1 + (total - having + 0.5) / (having + 0.5))
            if posting:
                clauses.append(_Clause(term, weight, posting))
            else:
                unknown += weight
        clauses.sort(key=lambda clause: (-clause.weight, clause.term))
        return clauses, unknown


def _name_terms(name: str) -> list[str]:
    """The terms of a name, stop words included: in `get_help` they are what it is about."""
    return [stem(word) for run in runs(name[:_FIELD_CHARACTERS]) for word in words(run)]


def _renaming(entry: CatalogEntry, known: AbstractSet[str]) -> list[str]:
    """What the public name says beyond the tool's own name and its server's."""
    if entry.public_name == entry.definition.name:
        return []
    return [term for term in _name_terms(entry.public_name) if term not in known]


def _words_of(query: str) -> list[str]:
    """The different words of a query in order; its stop words only if there are no others."""
    spoken = [word for run in runs(query[:_QUERY_CHARACTERS]) for word in words(run)]
    telling = [word for word in spoken if word not in STOP_WORDS] or spoken
    return list(dict.fromkeys(telling))[:_QUERY_WORDS]


def _top(clauses: Sequence[_Clause], count: int, among: AbstractSet[str] | None) -> dict[str, float]:
    """Scores that are exact for at least the `count` best names.

    Terms are taken in from the heaviest down. As soon as the light ones that are left cannot lift an
    unseen name among the best, only the names that can still get there are looked up in them.
    """
    left = sum(clause.weight * clause.posting.peak for clause in clauses)
    scores: dict[str, float] = {}
    closed = False
    for clause in clauses:
        impacts = clause.posting.impacts
        # Looking whether to close costs as much as taking in a posting of half as many names.
        if not closed and len(scores) >= count and len(impacts) >= max(_LONG_POSTING, len(scores) // 2):
            least = _least(scores, count, left)
            closed = left < least
            if closed:
                scores = {name: score for name, score in scores.items() if score + left >= least}
        _take_in(clause, scores, scores.keys() if closed else among)
        left -= clause.weight * clause.posting.peak
    return scores


def _least(scores: Mapping[str, float], count: int, left: float) -> float:
    """The lowest of the `count` best scores, or 0 if even the highest is no more than what is left."""
    if max(scores.values()) <= left:
        return 0.0
    return heapq.nlargest(count, scores.values())[-1] * _ROUNDING


def _take_in(clause: _Clause, scores: dict[str, float], among: AbstractSet[str] | None) -> None:
    weight, impacts = clause.weight, clause.posting.impacts
    if among is not None:
        for name in _in_both(among, impacts.keys()):
            scores[name] = scores.get(name, 0.0) + weight * impacts[name]
    elif scores:
        for name, impact in impacts.items():
            scores[name] = scores.get(name, 0.0) + weight * impact
    else:
        scores |= {name: weight * impact for name, impact in impacts.items()}


def _in_both(some: AbstractSet[str], others: AbstractSet[str]) -> list[str]:
    few, many = (some, others) if len(some) < len(others) else (others, some)
    return [name for name in few if name in many]
