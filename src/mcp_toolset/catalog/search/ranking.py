"""`Matcher`: the tools that a query names, then those that `Ranking` finds; `SearchIndex` asks it each query.

`Ranking` fuses a ranking by words and a ranking by meaning. Words alone miss tools that describe the same
thing in other words; meaning alone misses names and codes. Each has its share of the score. If both together
say too little about a query, no tool is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import nlargest
from itertools import islice
from typing import Protocol, runtime_checkable

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import IndexBase
from mcp_toolset.catalog.search.lexical import LexicalScorer, SortedWords, WordQuery
from mcp_toolset.catalog.search.meaning import MeaningScorer
from mcp_toolset.catalog.search.text import clauses_of, folded, is_one_word
from mcp_toolset.errors import DefinitionError

# The least part of the best score with which a tool is shown.
_TAIL = 0.4
# The least part of `enough` with which a tool without a word of the query is shown.
_WORDLESS = 0.7
# The part of a query, weighted by the rarity of its words, that makes a tool worth showing by words alone.
_COVERED = 0.6
_CHECKED = 5  # tools with the best scores by which the fit is judged


@dataclass(frozen=True, slots=True)
class TextMatches:
    """A query, or a clause of it, with the tools of both rankings."""

    asked: WordQuery  # the text as its words
    words: Mapping[str, float]  # the share of the text's words that a tool has, by public name
    meaning: Mapping[str, float]  # the cosine of a tool with the text, by public name
    enough: float  # the cosine at which meaning alone makes a tool worth showing

    @property
    def nearest(self) -> float:
        return max([*self.meaning.values(), self.enough])

    def fused(self, share: float, nearest: float) -> dict[str, float]:
        """The weighted sum of both rankings: words divided by their best, cosines by `nearest`."""
        # `share` is the part of the sum that comes from meaning; the words have the rest.
        per_word = (1 - share) / max(self.words.values(), default=1.0)
        per_cosine = share / nearest
        least = _WORDLESS * self.enough
        scores = {name: per_word * score for name, score in self.words.items()}
        for name, cosine in self.meaning.items():
            if name in self.words or cosine >= least:
                scores[name] = scores.get(name, 0.0) + per_cosine * cosine
        return scores

    def fit(self, scores: Mapping[str, float]) -> float:
        """The fit of the best tools to the text, by words and meaning together: 1 is enough."""
        bar = min(nlargest(_CHECKED, scores.values()), default=0.0)
        best = sorted((-score, name) for name, score in scores.items() if score >= bar)[:_CHECKED]
        return max((self._fit_of(name) for _, name in best), default=0.0)

    def _fit_of(self, name: str) -> float:
        cosine = max(0.0, self.meaning.get(name, 0.0))
        return self.asked.coverage(name) / _COVERED + cosine / self.enough


def averaged(whole: Mapping[str, float], clauses: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of a tool's score for the whole query and its best score for a clause."""
    best: dict[str, float] = {}
    for scores in clauses:
        for name, score in scores.items():
            best[name] = max(score, best.get(name, 0.0))
    return {name: (whole.get(name, 0.0) + best.get(name, 0.0)) / 2 for name in whole.keys() | best.keys()}


def without_tail(scores: Mapping[str, float]) -> dict[str, float]:
    bar = _TAIL * max(scores.values(), default=0.0)
    return {name: score for name, score in scores.items() if score >= bar}


_POOL = 100  # tools that each ranking gives for a query
_POOL_OF_CLAUSE = 30  # and for one of its clauses
_QUERY_CHARACTERS = 2_000
# Meaning has its whole share of the score of a query of a few telling words: so many, times its share over
# that of the words. With more, its share falls as their number grows, and clauses count averaged the whole.
_TELLING = 1.5
# A wrong hit costs a model a line and silence costs it the task: what fits less is shown as the nearest.
_SHOWN, _FITS, _WELL = 0.75, 1.0, 1.3
NEAREST = 5
# A tool that searches the web may answer a query that no tool fits well. Such a tool has a word of the second
# text, and a cosine with the first of `_SEARCHES` times `enough`.
_OPEN_WEB, _OPEN_WEB_WORDS = "search the web", "web internet google"
_SEARCHES = 1.6
_FEW = 3  # tools that search the web, at most
_UNSURE = 0.3  # the factor of their cosine in the score


@runtime_checkable
class Scorer(Protocol):
    """A second ranking of an index's tools, in addition to the ranking by words.

    The index reports each change once, removals before additions. A scorer leaves out tools that it cannot
    score. For a query that it cannot read, it returns nothing, and the index ranks by words alone.
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

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries."""

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """Scores above 0: of the `count` best public names `among` those given, and of `also`."""
        ...


def require_scorer(scorer: object) -> None:
    if scorer is None or scorer == "built-in":
        return
    if isinstance(scorer, type) or not isinstance(scorer, Scorer):
        raise DefinitionError(
            f"scorer={scorer!r} is no ranking: give 'built-in' (the default, which searches by words and by "
            f"meaning), None (by words alone), or a scorer{mend('scorer')}"
        )


@runtime_checkable
class ReadingScorer(Scorer, Protocol):
    """A scorer that must read a query before it can score tools for it, which may take time."""

    timeout: float  # how many seconds a search waits for `read` at most

    def must_read(self, query: str) -> bool:
        """True if reading the query now would change the answer."""
        ...

    def read(self, query: str) -> None:
        """Read a query, so that `best` can score it; may be called in any thread."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The result of a ranking."""

    scores: Mapping[str, float]  # public names with scores from 0 to 1; empty if no tool is worth showing
    fits: bool = True  # whether the best of them fit the query; if not, they are only the nearest


class Ranking:
    """The ranking by words, fused with a second one if the index has one."""

    def __init__(self, scorer: Scorer | None) -> None:
        self.words = LexicalScorer()
        self._scorer = scorer

    def rest_on(self, base: IndexBase) -> None:
        self.words = LexicalScorer(base=base)
        if isinstance(self._scorer, MeaningScorer) and base.vectors is not None:
            self._scorer.rest_on(base.vectors)

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        entries = list(entries)
        self.words.add(entries)
        if self._scorer is not None:
            self._scorer.add(entries)

    def remove(self, public_names: Iterable[str]) -> None:
        names = list(public_names)
        self.words.remove(names)
        if self._scorer is not None:
            self._scorer.remove(names)

    def best(
        self,
        query: str,
        count: int,
        among: AbstractSet[str] | None = None,
        hidden: AbstractSet[str] = frozenset(),
    ) -> Ranked:
        query = query[:_QUERY_CHARACTERS]
        asked = self.words.read(query, hidden)
        if self._scorer is None:
            return Ranked(asked.best(count, among))
        scorer, find = self._scorer, _Search(self.words, self._scorer, max(count, _POOL), among, hidden)
        share = _share(scorer.share, asked.telling)
        whole, *parts = find.matches_of(query, asked, clauses_of(query) if share < scorer.share else ())
        if not whole.meaning:
            return Ranked(asked.best(count, among))
        nearest = max((part.nearest for part in parts), default=0.0)
        scores = whole.fused(share, whole.nearest)
        by_clause = [part.fused(share, nearest) for part in parts]
        fit = max(map(TextMatches.fit, (whole, *parts), (scores, *by_clause)))
        ranked = without_tail(averaged(scores, by_clause) if parts else scores) if fit >= _SHOWN else {}
        return Ranked(ranked if fit >= _WELL else find.open_web() | ranked, fit >= _FITS)


def _share(whole: float, telling: float) -> float:
    """The share of meaning in the score of a query with so many telling words."""
    most, words = _TELLING * whole, (1 - whole) * telling
    return whole * most / words if words > most else whole


@dataclass(frozen=True, slots=True)
class _Search:
    """One search in both rankings."""

    words: LexicalScorer
    scorer: Scorer
    pool: int
    among: AbstractSet[str] | None
    hidden: AbstractSet[str]

    def matches_of(self, query: str, asked: WordQuery, clauses: Sequence[str]) -> list[TextMatches]:
        parts = [self.words.read(clause, self.hidden) for clause in clauses]
        by_words = (part.best(_POOL_OF_CLAUSE, self.among) for part in parts)
        candidates = frozenset(asked.best(self.pool, self.among)).union(*by_words)
        meaning = self.scorer.best(query, self.pool, self.among, candidates)
        candidates = candidates.union(meaning)
        found = [TextMatches(asked, asked.shares(candidates), meaning, self.scorer.enough)]
        for clause, part in zip(clauses, parts, strict=True):
            meaning = self.scorer.best(clause, len(candidates), candidates)
            found.append(TextMatches(part, part.shares(candidates), meaning, self.scorer.enough))
        return found

    def open_web(self) -> dict[str, float]:
        """The tools that search the web: they may answer what no other tool does."""
        known = self.words.read(_OPEN_WEB_WORDS, self.hidden).best(self.pool, self.among)
        nearest = self.scorer.best(_OPEN_WEB, _FEW, frozenset(known))
        least = _SEARCHES * self.scorer.enough
        return {name: _UNSURE * cosine for name, cosine in nearest.items() if cosine >= least}


PUBLIC_NAME = 1.0
OWN_NAME = 0.97
SPELLED_OTHERWISE = 0.94
BEGINNING = 0.85

_RANKED_BELOW = 0.8
_WITHIN_MATCH = 0.02
_LONGEST_FOLDED = 128
_SHORTEST_BEGINNING = 3
_SPELLINGS = 200


class NameTable:
    """Public names, original names, and both without case and punctuation."""

    def __init__(self, base: IndexBase | None = None) -> None:
        self._base = base
        self._gone: set[int] = set()
        self._entries: dict[str, CatalogEntry] = {}
        self._own: dict[str, list[str]] = {}
        self._spellings: dict[str, list[str]] = {}
        self._in_order = SortedWords(self._spellings.keys())

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        for entry in entries:
            self._entries[entry.public_name] = entry
            self._own.setdefault(entry.definition.name, []).append(entry.public_name)
            for spelling in spellings(entry.public_name, entry.definition.name):
                self._spellings.setdefault(spelling, []).append(entry.public_name)
                self._in_order.note((spelling,))

    def remove(self, public_names: Iterable[str]) -> None:
        for name in public_names:
            entry = self._entries.pop(name, None)
            if entry is None:
                self._gone.add(self._stored(name))
                continue
            _discard(self._own, entry.definition.name, name)
            for spelling in spellings(name, entry.definition.name):
                _discard(self._spellings, spelling, name)
                self._in_order.note((spelling,))

    def matches(self, query: str, *, beginnings: bool) -> dict[str, float]:
        """The public names that the query names (or begins: `beginnings`), each with the closeness."""
        found: dict[str, float] = {}
        spelling = folded(query) if len(query) <= _LONGEST_FOLDED else ""
        if beginnings and len(spelling) >= _SHORTEST_BEGINNING:
            found |= dict.fromkeys(self._beginning_with(spelling), BEGINNING)
        found |= dict.fromkeys(self._with_spelling(spelling), SPELLED_OTHERWISE)
        found |= dict.fromkeys(self._with_own_name(query) or self._with_own_name(query.strip()), OWN_NAME)
        if not self._is_public(query):
            query = query.strip()
        return found | {query: PUBLIC_NAME} if self._is_public(query) else found

    def _beginning_with(self, spelling: str) -> Iterable[str]:
        matches = {
            longer: [*self._spellings[longer]]
            for longer in self._in_order.beginning_with(spelling, _SPELLINGS)
        }
        if self._base is not None:
            every = self._base.spellings.beginning_with(spelling)
            stored = ((longer, names) for longer, tools in every if (names := self._names_at(tools)))
            for longer, names in islice(stored, _SPELLINGS):
                matches.setdefault(longer, []).extend(names)
        for longer in sorted(matches)[:_SPELLINGS]:
            yield from matches[longer]

    def _with_spelling(self, spelling: str) -> list[str]:
        stored = [] if self._base is None else self._names_at(self._base.spellings.of(spelling))
        return stored + self._spellings.get(spelling, [])

    def _with_own_name(self, own: str) -> list[str]:
        stored = [] if self._base is None else self._names_at(self._base.own_names.of(own))
        return stored + self._own.get(own, [])

    def _is_public(self, name: str) -> bool:
        at = self._stored(name)
        return name in self._entries or (at >= 0 and at not in self._gone)

    def _stored(self, name: str) -> int:
        return -1 if self._base is None else self._base.places.get(name, -1)

    def _names_at(self, tools: Iterable[int]) -> list[str]:
        return [] if self._base is None else [self._base.names[at] for at in tools if at not in self._gone]


class Matcher:
    """The tools that a query names, then those that the ranking finds."""

    def __init__(self, scorer: Scorer | None) -> None:
        self._names = NameTable()
        self.ranking = Ranking(scorer)

    def rest_on(self, base: IndexBase) -> None:
        self._names = NameTable(base)
        self.ranking.rest_on(base)

    def add(self, entries: Sequence[CatalogEntry]) -> None:
        self._names.add(entries)
        self.ranking.add(entries)

    def remove(self, public_names: Sequence[str]) -> None:
        self._names.remove(public_names)
        self.ranking.remove(public_names)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None, hidden: AbstractSet[str]
    ) -> Ranked:
        is_known = is_one_word(query) and self.ranking.words.knows(query, hidden)
        named = self._names.matches(query, beginnings=not is_known)
        if among is not None:
            named = {name: closeness for name, closeness in named.items() if name in among}
        ranked = self.ranking.best(query, count, among, hidden)
        scores = {name: _RANKED_BELOW * score for name, score in ranked.scores.items()}
        if named:
            within = self.ranking.best(query, len(named), named.keys(), hidden).scores
            scores |= {
                name: _named_score(closeness, within.get(name, 0.0)) for name, closeness in named.items()
            }
        return Ranked(scores, ranked.fits or bool(named))


def _named_score(closeness: float, score: float) -> float:
    """The score of a tool that the query names: the ranking decides among names that are equally close."""
    return closeness if closeness == 1 else closeness + _WITHIN_MATCH * score


def spellings(public_name: str, own_name: str) -> set[str]:
    return {folded(name[:_LONGEST_FOLDED]) for name in (public_name, own_name)} - {""}


def _discard(table: dict[str, list[str]], key: str, name: str) -> None:
    table[key].remove(name)
    if not table[key]:
        del table[key]
