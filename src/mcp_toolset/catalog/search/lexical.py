"""`LexicalScorer`: ranking by words, BM25F over fields, with postings that are updated tool by tool.

The impact of a term on a tool depends on that tool only: the mean lengths of fields are constants, not
those of the present catalog. So a changed tool changes only its own postings, and an index that grew step
by step equals one that was built at once. Only the rarity of a term depends on the catalog; it is computed
for each query.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cached_property
from itertools import compress, pairwise
from math import ceil, log
from os.path import commonprefix
from string import ascii_lowercase
from typing import Final, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import IndexBase, TermsBase
from mcp_toolset.catalog.search.text import STOP_WORDS, Tokenizer, spoken_words, stem

_SET = re.compile(b"\1")
_BELOW = [bytes(range(bar)) for bar in range(256)]


def highest(numbers: bytes | bytearray, count: int) -> list[int]:
    """The places of at least the `count` highest bytes, with all that equal the lowest of them, above 0."""
    rest, bar = numbers, 0
    for bit in (128, 64, 32, 16, 8, 4, 2, 1):
        # Only those that reach the bar are left, so that later steps cost less.
        reaching = rest.translate(None, _BELOW[bar | bit])
        if len(reaching) >= count:
            rest, bar = reaching, bar | bit
    bar = max(1, bar)
    marked = numbers.translate(bytes(bar) + b"\1" * (256 - bar))
    return [match.start() for match in _SET.finditer(marked)]


# Up to this number of tools are removed one by one; for more, writing the posting anew is faster.
_FEW = 8


class Places:
    """A place for each public name; places of removed names are reused, but not those in a file."""

    def __init__(self, base: IndexBase | None = None) -> None:
        self.names: list[str] = [] if base is None else [*base.names]  # the name at each place
        self.of: dict[str, int] = {} if base is None else base.places.copy()  # the place of each name
        self.base = len(self.names)  # how many places are of the file
        self.gone: set[int] = set()  # the places of the file whose names were removed
        self._vacant: list[int] = []

    def take(self, name: str) -> int:
        if self._vacant:
            place = self._vacant.pop()
            self.names[place] = name
        else:
            place = len(self.names)
            self.names.append(name)
        self.of[name] = place
        return place

    def free(self, name: str) -> int:
        place = self.of.pop(name)
        if place < self.base:
            self.gone.add(place)
        else:
            self._vacant.append(place)
        return place

    def at(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.of[name] for name in names if name in self.of)


IMPACT: Final = 1 << 14  # the whole number that stands for an impact of 1
Part: TypeAlias = "tuple[array[int], array[int]]"  # places, and the impact of a term at each of them


def _numbers() -> array[int]:
    return array("i")


@dataclass(slots=True, eq=False)
class Posting:
    """The tools that have one term."""

    term: str  # the term
    places: array[int] = field(default_factory=_numbers)  # unordered; without those of a file
    impacts: array[int] = field(default_factory=_numbers)  # the impact of the term at each of `places`
    stored: Part | None = None  # what a file has, places ascending; also of tools that were removed since
    lost: int = 0  # how many of the tools in `stored` were removed
    column: ImpactColumn | None = None  # the same as a column, while `ImpactColumns` holds it

    def __len__(self) -> int:
        return len(self.places) + (0 if self.stored is None else len(self.stored[0]) - self.lost)

    def put(self, place: int, impact: int) -> None:
        self.places.append(place)
        self.impacts.append(impact)
        self._change(place, impact)

    def parts(self) -> Iterator[Part]:
        """The parts to add up; a place is in one of them only, and may be one of `Places.gone`."""
        if self.stored is not None:
            yield self.stored
        if self.places:
            yield self.places, self.impacts

    def has_stored(self, place: int) -> bool:
        places = () if self.stored is None else self.stored[0]
        at = bisect_left(places, place)
        return places[at : at + 1] == array("i", [place]) if places else False

    def drop(self, places: AbstractSet[int]) -> None:
        if len(places) <= _FEW:
            for place in places:
                self._drop_one(place)
        else:
            both = [pair for pair in zip(self.places, self.impacts, strict=True) if pair[0] not in places]
            self.places = array("i", [place for place, _ in both])
            self.impacts = array("i", [impact for _, impact in both])
            self.column = None

    def _drop_one(self, place: int) -> None:
        at = _at(self.places, place)
        self._change(place, -self.impacts[at])
        last, impact = self.places.pop(), self.impacts.pop()
        if last != place:
            self.places[at], self.impacts[at] = last, impact

    def _change(self, place: int, impact: int) -> None:
        if self.column is not None and not self.column.change(place, impact):
            self.column = None


def _at(numbers: array[int], place: int) -> int:
    """The position of a place in the posting; searching its bytes is as fast as memory."""
    every, wanted, size = numbers.tobytes(), array("i", (place,)).tobytes(), numbers.itemsize
    at = every.index(wanted)
    while at % size:
        at = every.index(wanted, at + 1)
    return at // size


class PostingTable(AbstractSet[str]):
    """The posting of each term that some tool has."""

    def __init__(self, base: TermsBase | None = None) -> None:
        self._held: dict[str, Posting] = {}
        self._base = base
        self._lost: dict[str, int] = {}

    def __contains__(self, term: object) -> bool:
        held = self._held.get(cast("str", term))
        return bool(self._left(cast("str", term)) if held is None else held)

    def __iter__(self) -> Iterator[str]:
        if self._base is not None:
            yield from (term for term in self._base.terms if term in self)
        yield from (term for term in self._held if self._base is None or term not in self._base)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __and__(self, terms: AbstractSet[str]) -> set[str]:
        base = () if self._base is None else self._base
        return {term for term in terms if (term in self._held or term in base) and term in self}

    def get(self, term: str) -> Posting | None:
        found = self._held.get(term)
        if found is None and self._base is not None and self._left(term):
            lost = self._lost.pop(term, 0)
            found = self._held[term] = Posting(term, stored=self._base.posting(term), lost=lost)
        return found or None

    def parts(self, term: str) -> Iterable[Part]:
        held = self._held.get(term)
        if held is not None or self._base is None:
            return () if held is None else held.parts()
        return (self._base.posting(term),)

    def put(self, term: str, place: int, impact: int) -> Posting:
        posting = self.get(term)
        if posting is None:
            posting = self._held.setdefault(term, Posting(term))
        posting.put(place, impact)
        return posting

    def leave(self, posting: Posting, places: AbstractSet[int]) -> None:
        posting.drop(places)
        if not posting and posting.stored is None:
            del self._held[posting.term]

    def lose(self, term: str) -> None:
        held = self._held.get(term)
        if held is None:
            self._lost[term] = self._lost.get(term, 0) + 1
        else:
            held.lost += 1

    def _left(self, term: str) -> int:
        base = self._base
        return base.count(term) - self._lost.get(term, 0) if base is not None and term in base else 0


LANE_BYTES: Final = 4  # how much of a column belongs to each place

# A term that one tool in so many has is common.
_COMMON = 64
# All columns together have at most so many numbers, but a few columns there always are.
_NUMBERS = 1 << 19
_LEAST, _MOST = 24, 256
# With more changes than this a column is made anew.
_FEW_CHANGES = 64


class ImpactColumn:
    """The impact of one term at each place: thirty-two bits a place, 0 where the term is not."""

    def __init__(self, posting: Posting, size: int) -> None:
        by_place = array("I", bytes(LANE_BYTES * size))
        for places, impacts in posting.parts():
            for place, impact in zip(places, impacts, strict=True):
                by_place[place] = impact
        self._lanes = int.from_bytes(in_order(by_place), "little")
        self._changes: list[tuple[int, int]] = []

    def change(self, place: int, impact: int) -> bool:
        self._changes.append((place, impact))
        return len(self._changes) <= _FEW_CHANGES

    def lanes(self) -> int:
        for place, impact in self._changes:
            self._lanes += impact << (8 * LANE_BYTES * place)
        self._changes.clear()
        return self._lanes


def in_order(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class ImpactColumns:
    """The columns of the common terms that were asked for last."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._held: dict[Posting, None] = {}

    def of(self, posting: Posting) -> ImpactColumn | None:
        size = len(self._places.names)
        if _COMMON * len(posting) < size:
            return None
        self._held.pop(posting, None)
        self._held[posting] = None
        if posting.column is None:
            posting.column = ImpactColumn(posting, size)
            if len(self._held) > max(_LEAST, min(_MOST, _NUMBERS // size)):
                oldest = next(iter(self._held))
                del self._held[oldest]
                oldest.column = None
        return posting.column


_LANE_MOST = (1 << 8 * LANE_BYTES) - 1


Clause = tuple[float, Posting]
"""One term of a query: its weight and its posting."""


class WordQuery:
    """A query as its terms, heaviest first; valid until the index changes.

    `ceiling` is the score of a perfect match, `telling` the number of telling words: one that a single tool
    has counts as 1, one that all tools have as nearly nothing.
    """

    def __init__(
        self,
        clauses: Sequence[Clause],
        unknown: float,
        most: float,
        telling: float,
        places: Places,
        held: Mapping[str, Iterable[Posting]],
        columns: ImpactColumns,
    ) -> None:
        self._clauses = clauses
        self._most = most
        self._places = places
        self._held = held
        self._columns = columns
        self.telling = telling
        self.ceiling = most * (sum(weight for weight, _ in clauses) + unknown) or 1.0

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """The best public names, best first, with the share of the query that each matches (0 to 1)."""
        scores = self._highest(count) if among is None else self._of(among)
        first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
        return {name: score / self.ceiling for name, score in first}

    def shares(self, names: Iterable[str]) -> dict[str, float]:
        return (
            {name: score / self.ceiling for name, score in self._of(names).items()} if self._clauses else {}
        )

    def coverage(self, name: str) -> float:
        """The share of the query in all fields of a tool: 0 to 1, weighted by the rarity of the terms."""
        place = self._places.of.get(name, -1)
        if 0 <= place < self._places.base:
            had = sum(weight for weight, posting in self._clauses if posting.has_stored(place))
        else:
            held = frozenset(self._held.get(name, ()))
            had = sum(weight for weight, posting in self._clauses if posting in held)
        return had * self._most / self.ceiling if had else 0.0

    @cached_property
    def _scores(self) -> array[int]:
        lanes, rare = 0, list[tuple[int, Posting]]()
        for weight, posting in self._clauses:
            whole, column = ceil(weight / self._unit), self._columns.of(posting)
            if column is None:
                rare.append((whole, posting))
            else:
                lanes += whole * column.lanes()
        scores = array("I", lanes.to_bytes(LANE_BYTES * len(self._places.names), "little"))
        if sys.byteorder == "big":
            scores.byteswap()
        for weight, posting in rare:
            for places, impacts in posting.parts():
                for place, impact in zip(places, impacts, strict=True):
                    scores[place] += weight * impact
        for place in self._places.gone:
            scores[place] = 0
        return scores

    @cached_property
    def _unit(self) -> float:
        """The unit of weights as whole numbers: a score of `most` for every term still fits a lane."""
        weights = _LANE_MOST // ceil(self._most)
        # Each is rounded up, by less than 1.
        return sum(weight for weight, _ in self._clauses) / (weights - len(self._clauses)) or 1.0

    def _of(self, names: Iterable[str]) -> dict[str, float]:
        of, scores, unit = self._places.of, self._scores, self._unit
        return {name: unit * score for name in names if name in of and (score := scores[of[name]])}

    def _highest(self, count: int) -> dict[str, float]:
        scores, names, unit = self._scores, self._places.names, self._unit
        places: Iterable[int] = highest(in_order(scores)[LANE_BYTES - 1 :: LANE_BYTES], count)
        if len(places) < count:
            places = compress(range(len(scores)), scores)
        return {names[place]: unit * scores[place] for place in places}


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


class SortedWords:
    """Words in order, kept so at the cost of what has changed."""

    def __init__(self, known: AbstractSet[str], in_order: Iterable[str] | None = None) -> None:
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

    def __init__(self, known: AbstractSet[str], in_order: Iterable[str] | None = None) -> None:
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
            crowd = self._in_order.beginning_with(term[:_HEAD])
            found = _longer(term, crowd) or _two_edits(term, crowd)
        return sorted(found, key=lambda known: (abs(len(known) - len(term)), known))[:_NEAREST]

    def _one_edit_from(self, term: str) -> AbstractSet[str]:
        """Edits in the first half are generated; for later edits, words that begin alike are compared."""
        head = len(term) // 2
        found = self._known & {*_edits(term, head)}
        return {*found} | {
            known for known in self._in_order.beginning_with(term[:head]) if _is_one_edit(term, known)
        }


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
    """The weight of one field of a tool."""

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
        own = [weight for weight, posting in clauses if wanted[posting.term] == 1]
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
                clauses.append((weight, posting))
        clauses.sort(key=lambda clause: (-clause[0], clause[1].term))
        return clauses, unknown


def _rarity(having: int, total: int) -> float:
    return log(1 + (total - having + 0.5) / (having + 0.5))
