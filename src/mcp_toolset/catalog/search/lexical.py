"""`LexicalScorer`: ranking by words, BM25F over fields, with postings that are updated tool by tool.

The impact of a term on a tool depends on that tool only: the mean lengths of fields are constants, not
those of the present catalog. So a changed tool changes only its own postings, and an index that grew step
by step equals one that was built at once. Only the rarity of a term depends on the catalog; it is computed
for each query.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from math import log
from os.path import commonprefix
from string import ascii_lowercase
from typing import Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import IndexBase
from mcp_toolset.catalog.search.postings import (
    IMPACT,
    Clause,
    ImpactColumns,
    Places,
    Posting,
    PostingTable,
    WordQuery,
)
from mcp_toolset.catalog.search.text import STOP_WORDS, Tokenizer, spoken_words, stem

_HEAD = 3
_SHORTEST = 5
_SHORTEST_FOR_TWO_EDITS = 8
_LONGEST_ENDING = 5
_CROWD = 2_000
_NEAREST = 3
_REMEMBERED = 256
_LAST = "\U0010ffff"
# Up to so many words are put in their places one by one; for more, sorting is faster.
_CHANGED = 500


class Words(Protocol):
    """The words of an index, which may change."""

    def __contains__(self, word: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __and__(self, words: AbstractSet[str], /) -> AbstractSet[str]: ...


class SortedWords:
    """Words in order, kept so at the cost of what has changed."""

    def __init__(self, known: Words, in_order: Iterable[str] | None = None) -> None:
        """Sort `known`, which may change: report that with `note`. `in_order`: the same, if it is sorted."""
        self._known = known
        self._in_order: list[str] = [*(in_order or ())]
        self._changed: set[str] | None = None if in_order is None else set()

    def note(self, words: Iterable[str]) -> None:
        if self._changed is not None:
            self._changed.update(words)
            if len(self._changed) > _CHANGED:
                self._changed = None

    def forget(self) -> None:
        self._changed = None

    def beginning_with(self, head: str, most: int | None = None) -> list[str]:
        order = self._sorted()
        start = bisect_left(order, head)
        end = bisect_left(order, head + _LAST, lo=start)
        return order[start : end if most is None else min(end, start + most)]

    def _sorted(self) -> list[str]:
        if self._changed is None:
            self._in_order = sorted(self._known)
        else:
            for word in self._changed:
                self._place(word)
        self._changed = set()
        return self._in_order

    def _place(self, word: str) -> None:
        order = self._in_order
        at = bisect_left(order, word)
        held = order[at : at + 1] == [word]
        if held and word not in self._known:
            del order[at]
        elif not held and word in self._known:
            order.insert(at, word)


class Vocabulary:
    """The words of an index, searched for words similar to another."""

    def __init__(self, known: Words, in_order: Iterable[str] | None = None) -> None:
        """Search `known`, which may change: report that with `note` or `forget_order`; see `SortedWords`."""
        self._known = known
        self._in_order = SortedWords(known, in_order)
        self._nearest: dict[str, list[str]] = {}

    def note(self, terms: Iterable[str]) -> None:
        self._nearest.clear()
        self._in_order.note(terms)

    def forget_order(self) -> None:
        self._nearest.clear()
        self._in_order.forget()

    def nearest(self, term: str) -> list[str]:
        """The known terms that an unknown one most likely means; none for short words and codes."""
        # First those one edit away, else longer words that begin with it, else those two edits away.
        if len(term) < _SHORTEST or not term.isalpha():
            return []
        # The clauses of a query have its words once more.
        found = self._nearest.get(term)
        if found is None:
            if len(self._nearest) >= _REMEMBERED:
                self._nearest.clear()
            found = self._nearest[term] = self._find(term)
        return found

    def _find(self, term: str) -> list[str]:
        found: Collection[str] = self._one_edit_from(term)
        if not found:
            crowd = self._beginning_with(term[:_HEAD])
            found = _longer(term, crowd) or _two_edits(term, crowd)
        return sorted(found, key=lambda known: (abs(len(known) - len(term)), known))[:_NEAREST]

    def _one_edit_from(self, term: str) -> AbstractSet[str]:
        """Edits in the first half are generated; for later edits, words that begin alike are compared."""
        head = len(term) // 2
        found = self._known & {*_edits(term, head)}
        return {*found} | {known for known in self._beginning_with(term[:head]) if _is_one_edit(term, known)}

    def _beginning_with(self, head: str) -> list[str]:
        return self._in_order.beginning_with(head)


def _edits(term: str, places: int) -> Iterator[str]:
    for place in range(places):
        before, after = term[:place], term[place:]
        yield from [before + letter + after for letter in ascii_lowercase]
        yield from [before + letter + after[1:] for letter in ascii_lowercase]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]


def _is_one_edit(one: str, other: str) -> bool:
    if abs(len(one) - len(other)) > 1:
        return False
    start = len(commonprefix((one, other)))
    rest, facing = one[start:], other[start:]
    if len(rest) != len(facing):
        return rest[1:] == facing or rest == facing[1:]
    return rest[1:] == facing[1:] or (rest[:2] == facing[1::-1] and rest[2:] == facing[2:])


def _longer(term: str, crowd: Iterable[str]) -> list[str]:
    longest = len(term) + _LONGEST_ENDING
    return [known for known in crowd if len(known) <= longest and known.startswith(term)]


def _two_edits(term: str, crowd: Collection[str]) -> list[str]:
    if len(term) < _SHORTEST_FOR_TWO_EDITS or len(crowd) > _CROWD:
        return []
    letters = set(term)
    close = (known for known in crowd if abs(len(known) - len(term)) <= 2 and len(letters ^ set(known)) <= 4)
    return [known for known in close if distance(term, known) <= 2]


def distance(one: str, other: str) -> int:
    older: list[int] = []
    old = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        row = [i + 1]
        for j, facing in enumerate(other):
            cost = min(old[j] + (letter != facing), old[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and facing == one[i - 1]:
                cost = min(cost, older[j - 1] + 1)
            row.append(cost)
        older, old = old, row
    return old[-1]


_LINES = """
add append insert
aggregate summarize total
ai llm
article post
authenticate login signin
begin start launch
bug issue ticket
buy purchase order
calculate compute
calendar schedule event
cancel abort stop
chart graph plot diagram visualize
chat message conversation
client customer
combine merge join concatenate
command shell terminal
compare diff difference
config configuration setting
container docker
contact person
convert transform
copy duplicate clone
create make new
currency exchange forex
database db sql
delete remove erase
deploy release publish
directory folder dir
document doc
docs documentation
download fetch
edit modify update change
email mail
employee staff
environment env
error exception failure
execute run
expense cost
explain describe
fetch retrieve get
file document
film movie
find search lookup query
function method
generate create
history log
image picture photo img
info information detail
invite add
invoice bill
job vacancy position
kubernetes k8s
latest recent newest
library package
link url
list enumerate show
location place address
maximum max
meeting appointment event
minimum min
move rename
music song track
navigate directions route
news headline
notify notification alert
open launch
organization org company
page webpage
paper publication
password credential secret
payment charge
picture screenshot
presentation slide powerpoint ppt
price cost quote
question query
reference citation
refund reimburse
repair fix
repository repo
restaurant dining
resume cv
save store write
scrape crawl
send post
share stock equity
shop store
site website
spreadsheet excel workbook xlsx
statistics stats
summary digest overview
task todo
translate translation
trip travel
undo revert rollback
upload put
user account member
video clip
view read show
weather forecast
word docx
"""


def _neighbours() -> Mapping[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _LINES.split("\n"):
        terms = [stem(word) for word in line.split()]
        for term in terms:
            table.setdefault(term, {}).update((other, None) for other in terms if other != term)
    return {term: tuple(others) for term, others in table.items()}


ALIASES = _neighbours()


_FIELD_CHARACTERS = 8_000
_QUERY_CHARACTERS = 2_000
_QUERY_WORDS = 64
_CORRECTIONS = 8
_SHORT = 0.25


@dataclass(frozen=True)
class Field:
    """How much one field of a tool counts."""

    weight: float  # the weight of one occurrence of a term
    mean_length: float  # the usual number of terms; longer fields count less
    slope: float  # how much length counts: 0 not at all, 1 fully

    def once_in(self, length: int) -> float:
        """The weight of one occurrence in a field of so many terms; very short is no better than short."""
        relative = max(length / self.mean_length, _SHORT)
        return self.weight / (1 - self.slope + self.slope * relative)


@dataclass(frozen=True)
class Weights:
    """All tunable weights. The defaults were tuned on the agent queries of LiveMCPBench only."""

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


class LexicalScorer:
    """BM25F over the fields of catalog entries, with aliases and correction of unknown words."""

    def __init__(self, weights: Weights | None = None, base: IndexBase | None = None) -> None:
        self._weights = weights or Weights()
        self._tokenizer = Tokenizer()
        self._stored = None if base is None else base.terms
        self.postings = PostingTable(self._stored)
        self._vocabulary = Vocabulary(self.postings, None if base is None else base.terms.terms)
        self._held: dict[str, tuple[Posting, ...]] = {}
        self.places = Places(base)
        self._most = (self._weights.saturation + 1) * IMPACT
        self._columns = ImpactColumns(self.places)

    def knows(self, word: str, hidden: AbstractSet[str] = frozenset()) -> bool:
        return self._having(stem(word), self.places.at(hidden)) > 0

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        for entry in entries:
            place = self.places.take(entry.public_name)
            self._held[entry.public_name] = tuple(
                [self.postings.put(term, place, impact) for term, impact in self._impacts(entry).items()]
            )
            self._vocabulary.note(posting.term for posting in self._held[entry.public_name])
        self._tokenizer.forget()

    def remove(self, public_names: Iterable[str]) -> None:
        left: dict[Posting, set[int]] = {}
        for name in public_names:
            if name in self._held:
                place = self.places.free(name)
                for posting in self._held.pop(name):
                    left.setdefault(posting, set()).add(place)
            elif name in self.places.of:
                self._lose(self.places.free(name))
        for posting, places in left.items():
            self.postings.leave(posting, places)
        self._vocabulary.note(posting.term for posting in left)

    def best(self, query: str, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        return self.read(query).best(count, among)

    def read(self, query: str, hidden: AbstractSet[str] = frozenset()) -> WordQuery:
        """Parse a query: any text, of a long one only the first part; `hidden` tools count for nothing."""
        places = self.places.at(hidden)
        wanted = self._wanted(query, places)
        clauses, unknown = self._clauses(wanted, places)
        own = [clause.weight for clause in clauses if wanted[clause.posting.term] == 1]
        telling = sum(own) / _rarity(1, len(self.places.of) - len(places))
        return WordQuery(clauses, unknown, self._most, telling, self.places, self._held, self._columns)

    def _lose(self, place: int) -> None:
        terms = () if self._stored is None else self._stored.of(place)
        for term in terms:
            self.postings.lose(term)
        self._vocabulary.note(terms)

    def _impacts(self, entry: CatalogEntry) -> dict[str, int]:
        weighted: dict[str, float] = {}
        for measure, terms in self._fields(entry):
            once = measure.once_in(len(terms))
            for term in terms:
                weighted[term] = weighted.get(term, 0.0) + once
        k, most = self._weights.saturation, self._most
        return {term: int(weight * most / (k + weight)) for term, weight in weighted.items()}

    def _fields(self, entry: CatalogEntry) -> Iterator[tuple[Field, list[str]]]:
        weights, definition, read = self._weights, entry.definition, self._read
        parameters = list(entry.parameters())
        name, server = self._read_name(definition.name), read(entry.server or "")
        yield weights.name, name + self._renaming(entry, {*name, *server})
        yield weights.title, read(definition.title or "")
        yield weights.description, read(definition.description or "")
        yield weights.server, server
        yield weights.tags, read(" ".join(entry.tags))
        yield weights.parameter_names, read(" ".join(name for name, _ in parameters))
        yield weights.parameter_descriptions, read("\n".join(described for _, described in parameters))

    def _read(self, text: str) -> list[str]:
        return self._tokenizer.terms(text[:_FIELD_CHARACTERS])

    def _read_name(self, name: str) -> list[str]:
        return self._tokenizer.name_terms(name[:_FIELD_CHARACTERS])

    def _renaming(self, entry: CatalogEntry, known: AbstractSet[str]) -> list[str]:
        if entry.public_name == entry.definition.name:
            return []
        return [term for term in self._read_name(entry.public_name) if term not in known]

    def _having(self, term: str, hidden: AbstractSet[int]) -> int:
        posting = self.postings.get(term)
        if posting is None or not hidden:
            return 0 if posting is None else len(posting)
        left_out = hidden | self.places.gone
        return sum(place not in left_out for places, _ in posting.parts() for place in places)

    def _wanted(self, query: str, hidden: AbstractSet[int]) -> dict[str, float]:
        every = spoken_words(query[:_QUERY_CHARACTERS])
        spoken = [word for word in every if word not in STOP_WORDS][:_QUERY_WORDS] or every[:_QUERY_WORDS]
        stems = [stem(word) for word in spoken]
        wanted = dict.fromkeys(stems, 1.0)
        for term in [term for term in wanted if not self._having(term, hidden)][:_CORRECTIONS]:
            nearest = [near for near in self._vocabulary.nearest(term) if self._having(near, hidden)]
            if nearest:
                del wanted[term]
            self._offer(wanted, nearest, self._weights.correction, hidden)
        compounds = (stem(one + other) for one, other in pairwise(spoken))
        self._offer(wanted, compounds, self._weights.compound, hidden)
        for term in stems:
            others = [other for other in ALIASES.get(term, ()) if self._having(other, hidden)]
            if others and not self._having(term, hidden):
                wanted.pop(term, None)
            self._offer(wanted, others, self._weights.alias, hidden)
        return wanted

    def _offer(
        self, wanted: dict[str, float], terms: Iterable[str], weight: float, hidden: AbstractSet[int]
    ) -> None:
        for term in terms:
            if self._having(term, hidden):
                wanted[term] = max(weight, wanted.get(term, 0.0))

    def _clauses(self, wanted: Mapping[str, float], hidden: AbstractSet[int]) -> tuple[list[Clause], float]:
        total, unknown = len(self.places.of) - len(hidden), 0.0
        clauses: list[Clause] = []
        for term, weight in wanted.items():
            posting = self.postings.get(term)
            having = self._having(term, hidden)
            weight *= _rarity(having, total)
            if posting is None or not having:
                unknown += weight
            else:
                clauses.append(Clause(weight, posting))
        clauses.sort(key=lambda clause: (-clause.weight, clause.posting.term))
        return clauses, unknown


def _rarity(having: int, total: int) -> float:
    return log(1 + (total - having + 0.5) / (having + 0.5))
