"""`MeaningScorer`: ranking by cosine similarity of a query and the text of each tool.

`SearchIndex` uses it by default. It embeds with the built-in table of word vectors, which is read from disk
when the first tool is indexed. `EmbeddingScorer` does the same with a sentence model of the host's choice.

The vector of a text is the sum of its pieces' vectors. The table was distilled from a sentence model by
`scripts/train_search`; `word_vectors/table.json` has the details. Only whole numbers are used: the numbers of
a piece are side by side in one long integer, thirty-two bits each, so that adding two pieces is one addition.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, cached_property, partial
from importlib.resources import files
from itertools import islice
from math import sqrt
from operator import mul
from typing import Final, Protocol, final

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import VectorRows
from mcp_toolset.catalog.search.lexical import highest
from mcp_toolset.catalog.search.text import STOP_WORDS, plain

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST_PIECE = 20
_LETTERS_WORTH = 2


def words_of(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(plain(text))]


def is_latin(text: str) -> bool:
    letters = [letter.isascii() for letter in plain(text) if letter.isalpha()]
    # A letter of a script without an alphabet says as much as several.
    return sum(letters) >= _LETTERS_WORTH * (len(letters) - sum(letters))


def pieces_of(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    places: list[int] = []
    start = 0
    while start < len(word):
        for end in range(min(len(word), start + _LONGEST_PIECE), start, -1):
            piece = word[start:end] if start == 0 else f"##{word[start:end]}"
            place = vocabulary.get(piece)
            if place is not None:
                places.append(place)
                start = end
                break
        else:
            start += 1
    return places


_LANE_BYTES = 4
_SCALE_BYTES = 2
_MIDDLE = 128
# The values that half a byte stands for, spaced so that normally distributed numbers lose least.
LEVELS = (-127, -96, -75, -58, -44, -30, -18, -6, 6, 18, 30, 44, 58, 75, 96, 127)
_LOW = bytes(_MIDDLE + LEVELS[value & 15] for value in range(256))
_HIGH = bytes(_MIDDLE + LEVELS[value >> 4] for value in range(256))
# A piece has a character or more, and thirty-two bits hold this many pieces: 255 × 4,095 × 4,000 < 2³².
_LONGEST_TEXT = 4_000
_CACHED_WORDS = 16_384
# Average letters per piece from which a word of several pieces counts as a word.
_WORDLIKE = 3


class WordVectors:
    """One vector for each word piece; a text is the sum of its pieces."""

    def __init__(self, pieces: Sequence[str], scales: Sequence[int], rows: bytes) -> None:
        self._stride = len(rows) // len(pieces)
        self.dimensions = 2 * self._stride
        self._vocabulary = {piece: place for place, piece in enumerate(pieces)}
        self._scales = scales
        self._rows = rows
        self._words: dict[str, int] = {}
        self.forget = self._words.clear

    def encode(self, text: str, *, wordlike: bool = False) -> list[int] | None:
        """A vector for a text; `None` without a known word, or if `wordlike` with only short pieces."""
        words = words_of(text[:_LONGEST_TEXT])
        if wordlike and not any(map(self._is_word, words)):
            return None
        total = sum(map(self._word, words))
        lanes = array("I", total.to_bytes(_LANE_BYTES * (self.dimensions + 1), "little"))
        if sys.byteorder == "big":
            lanes.byteswap()
        nothing = _MIDDLE * lanes.pop()
        numbers = [number - nothing for number in lanes]
        return numbers if any(numbers) else None

    def _is_word(self, word: str) -> bool:
        pieces = len(pieces_of(word, self._vocabulary))
        return pieces > 0 and len(word) > 1 and (pieces == 1 or len(word) >= _WORDLIKE * pieces)

    def _word(self, word: str) -> int:
        known = self._words.get(word)
        if known is None:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            known = self._words[word] = sum(map(self._row, pieces_of(word, self._vocabulary)))
        return known

    def _row(self, place: int) -> int:
        """The numbers of one piece, and after them how often 1 was added, which gives the zero point."""
        both = self._rows[place * self._stride : (place + 1) * self._stride]
        lanes = bytearray(_LANE_BYTES * (self.dimensions + 1))
        lanes[::_LANE_BYTES] = both.translate(_LOW) + both.translate(_HIGH) + b"\1"
        return int.from_bytes(lanes, "little") * self._scales[place]


@cache
def built_in() -> WordVectors:
    table = files("mcp_toolset.catalog.search") / "word_vectors"
    pieces = (table / "pieces.txt").read_text("utf-8").split("\n")
    numbers = (table / "vectors.bin").read_bytes()
    scales = array("H", numbers[: _SCALE_BYTES * len(pieces)])
    if sys.byteorder == "big":
        scales.byteswap()
    return WordVectors(pieces, scales, numbers[_SCALE_BYTES * len(pieces) :])


MIDDLE: Final = 32
LARGEST: Final = 31
LEAST: Final = MIDDLE - LARGEST
MOST: Final = MIDDLE + LARGEST

_PRODUCT_BYTES = 2
# The sizes of a query's numbers sum to this at most, so that sixteen bits hold each product: 1,040 × 63 <
# 2¹⁶, and in a sketch eight bits: 85 × 3 < 2⁸.
_QUERY_SUM, _SKETCH_SUM = 1_040, 85
_FINER = 0.99
# Vectors of a catalog have normally distributed numbers; so two bits lose least.
_SKETCH_BARS = 24, 32, 41
_SKETCHED = bytes(sum(number >= bar for bar in _SKETCH_BARS) for number in range(256))


class VectorColumns:
    """Vectors at one moment; one is a row of numbers from `LEAST` to `MOST`, which stand for -31 to 31."""

    def __init__(self, names: Sequence[str], rows: Callable[[], bytes], dimensions: int) -> None:
        self.names = names
        self.places = dict(zip(names, range(len(names)), strict=True))
        self._rows = rows
        self._dimensions = dimensions
        self._left: list[int] = []

    @cached_property
    def _columns(self) -> list[int]:
        rows, size = self._rows(), self._dimensions
        return [_spread(rows[dimension::size]) for dimension in range(size)]

    @cached_property
    def _mirror(self) -> int:
        return _spread(bytes([MOST]) * len(self.names))

    @cached_property
    def _sketch(self) -> list[int]:
        rows, size = self._rows().translate(_SKETCHED), self._dimensions
        return [int.from_bytes(rows[dimension::size], "little") for dimension in range(size)]

    @cached_property
    def _sketch_mirror(self) -> int:
        return int.from_bytes(b"\3" * len(self.names), "little")

    def leave(self, name: str) -> int:
        place = self.places.pop(name, None)
        if place is not None:
            self._left.append(place)
        return len(self._left)

    def products(self, query: Sequence[int]) -> array[int]:
        """The product of each place with whole numbers, above `zero_of(query)` if it is above 0."""
        total = _total(query, self._columns, self._mirror)
        products = array("H", total.to_bytes(_PRODUCT_BYTES * len(self.names), "little"))
        if sys.byteorder == "big":
            products.byteswap()
        for place in self._left:
            products[place] = 0
        return products

    def highest(self, products: array[int], count: int) -> list[int]:
        """The places of at least the `count` highest products, as far as their upper byte is above 0."""
        return highest(products.tobytes()[sys.byteorder == "little" :: _PRODUCT_BYTES], count)

    def sketched(self, vector: Sequence[float], count: int) -> list[str]:
        """About the `count` names whose vectors are nearest to a query's, by a coarse look at all."""
        query, _ = whole_numbers(vector, _SKETCH_SUM)
        total = _total(query, self._sketch, self._sketch_mirror)
        products = bytearray(total.to_bytes(len(self.names), "little"))
        for place in self._left:
            products[place] = 0
        return [self.names[place] for place in highest(products, count)]


def whole_numbers(vector: Sequence[float], most: int = _QUERY_SUM) -> tuple[list[int], float]:
    """A query's vector as whole numbers whose sizes sum to `most` at most, and what 1 became."""
    scale = most / (sum(map(abs, vector)) or 1.0)
    while True:
        numbers = [round(value * scale) for value in vector]
        if sum(map(abs, numbers)) <= most:
            return numbers, scale
        scale *= _FINER


def zero_of(query: Sequence[int]) -> int:
    return MIDDLE * sum(query) - MOST * sum(number for number in query if number < 0)


def _total(query: Sequence[int], columns: Sequence[int], mirror: int) -> int:
    """The sum of the columns, each times its number; of `mirror` minus the column if that is below 0."""
    # All bits of `mirror` that a column may have are set, so `^` subtracts, and faster.
    # Columns that share a number are added first: adding is cheaper than multiplying.
    sums: dict[int, int] = {}
    for number, column in zip(query, columns, strict=True):
        if number > 0:
            sums[number] = sums.get(number, 0) + column
        elif number:
            sums[-number] = sums.get(-number, 0) + (column ^ mirror)
    return sum(number * added for number, added in sums.items())


def _spread(numbers: bytes) -> int:
    wide = bytearray(_PRODUCT_BYTES * len(numbers))
    wide[::_PRODUCT_BYTES] = numbers
    return int.from_bytes(wide, "little")


_MIDDLE_AND_HALF = MIDDLE + 0.5
# The values of a unit vector of n dimensions lie around 1/√n; larger ones than this many times that are cut.
_REACH = 3.5
# Columns of fewer names than one in so many are faster than the columns of all.
_FEWER = 4
# After so many changes the columns are built anew.
_RECENT = 256
# In a catalog of so many, a sketch chooses those that are compared: so many times those that are wanted.
_MANY = 3_000
_CHOSEN = 3


class Similarity(Protocol):
    """The cosine similarity of one query to every tool."""

    def of(self, names: Iterable[str]) -> dict[str, float]: ...

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]: ...


class PackedVectors:
    """Vectors by name, compared with a query all at once."""

    def __init__(self, dimensions: int, base: VectorRows | None = None) -> None:
        self._dimensions = dimensions
        self._step = _REACH / sqrt(dimensions) / LARGEST
        self._base = None if base is None else base[1]
        # A vector, or its row in the file.
        self._vectors: dict[str, bytes | int] = {}
        self._columns: VectorColumns | None = None
        if base is not None:
            names, rows = base
            self._vectors.update(zip(names, range(len(names)), strict=True))
            self._columns = VectorColumns(names, lambda: bytes(rows), dimensions)
        self._recent: dict[str, bytes] = {}
        self._recent_columns: VectorColumns | None = None
        self._some: tuple[frozenset[str], VectorColumns] | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def put(self, name: str, vector: Sequence[float]) -> None:
        scale = 1 / (_length(vector) * self._step)
        # `int` cuts off the fraction, so half a step is added first; `round` is much slower.
        numbers = [int(value * scale + _MIDDLE_AND_HALF) for value in vector]
        if max(numbers) > MOST or min(numbers) < LEAST:
            numbers = [max(LEAST, min(MOST, number)) for number in numbers]
        self._leave(name)
        self._vectors[name] = row = bytes(numbers)
        if self._columns is not None:
            self._recent[name] = row

    def row(self, name: str) -> bytes | None:
        vector = self._vectors.get(name)
        if isinstance(vector, int) and self._base is not None:
            return bytes(self._base[vector * self._dimensions : (vector + 1) * self._dimensions])
        return vector if isinstance(vector, bytes) else None

    def _columns_for(self, names: Iterable[str]) -> VectorColumns:
        names = tuple(name for name in names if name in self._vectors)
        return VectorColumns(names, partial(self._rows, names), self._dimensions)

    def _rows(self, names: Iterable[str]) -> bytes:
        gone, size, vectors = bytes(self._dimensions), self._dimensions, self._vectors
        stored = b"" if self._base is None else self._base
        rows = (vectors.get(name, gone) for name in names)
        return b"".join(
            [row if isinstance(row, bytes) else stored[row * size : (row + 1) * size] for row in rows]
        )

    def _every(self) -> tuple[VectorColumns, ...]:
        if self._columns is None:
            self._columns = self._columns_for(self._vectors)
        if not self._recent:
            return (self._columns,)
        if self._recent_columns is None:
            self._recent_columns = self._columns_for(self._recent)
        return self._columns, self._recent_columns

    def _columns_of(self, among: frozenset[str]) -> tuple[VectorColumns, ...]:
        if _FEWER * len(among) > len(self._vectors):
            return self._every()
        if self._some is None or not among <= self._some[0]:
            self._some = among, self._columns_for(among)
        return (self._some[1],)

    def drop(self, name: str) -> None:
        if self._vectors.pop(name, None) is not None:
            self._leave(name)

    def _leave(self, name: str) -> None:
        """Make the columns forget a name, which they may have; all of them after many changes."""
        self._recent_columns = self._some = None
        self._recent.pop(name, None)
        columns = self._columns
        if columns is not None and max(len(self._recent), columns.leave(name)) >= _RECENT:
            self._columns = None
            self._recent.clear()

    def cosines(
        self, vector: Sequence[float], scale: float = 1.0, among: AbstractSet[str] | None = None
    ) -> Cosines:
        """The cosine of a query's vector with every vector, times `scale`."""
        # Of a frozen set of a few names in `among` at least with theirs; the next query among these is quick.
        columns = self._columns_of(among) if isinstance(among, frozenset) else self._every()
        query, finer = whole_numbers(vector)
        products = [(each, each.products(query)) for each in columns]
        return Cosines(products, zero_of(query), scale * self._step / (finer * _length(vector)))

    def nearest(
        self, vector: Sequence[float], count: int, among: AbstractSet[str] | None, also: Iterable[str]
    ) -> dict[str, float]:
        if len(self._vectors) < _MANY:
            return best_cosines(self.cosines(vector, among=among), count, among, also)
        chosen = self._chosen(vector, count, among)
        similarity = self.cosines(vector, among=chosen.union(also))
        return best_cosines(similarity, count, chosen, also)

    def _chosen(self, vector: Sequence[float], count: int, among: AbstractSet[str] | None) -> frozenset[str]:
        """The rows worth comparing: `_CHOSEN` times the count, by the sketch, and those changed since."""
        if among is not None and _FEWER * len(among) < len(self._vectors):
            return frozenset(among)
        columns, wanted = self._every()[0], _CHOSEN * count
        chosen = {*columns.sketched(vector, wanted), *self._recent}
        while among is not None and len(chosen & among) < count and wanted < len(self._vectors):
            wanted *= _FEWER
            chosen.update(columns.sketched(vector, wanted))
        return frozenset(chosen if among is None else chosen & among)


class Cosines:
    """The cosines of one query with all vectors, computed for a name when they are read; see `Similarity`."""

    def __init__(self, products: Sequence[tuple[VectorColumns, array[int]]], zero: int, unit: float) -> None:
        self._products = products
        self._zero = zero
        self._unit = unit

    @property
    def names(self) -> Sequence[str]:
        return [name for columns, _ in self._products for name in list(columns.places)]

    def of(self, names: Iterable[str]) -> dict[str, float]:
        names, found, zero, unit = list(names), dict[str, float](), self._zero, self._unit
        for columns, products in self._products:
            places = columns.places
            found |= {name: (products[places[name]] - zero) * unit for name in names if name in places}
        return found

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        found: dict[str, int] = {}
        for columns, products in self._products:
            places, names = columns.places, columns.names
            if among is None:
                found |= {names[place]: products[place] for place in columns.highest(products, count)}
            else:
                found |= {name: products[places[name]] for name in among if name in places}
        bar = max(sorted(found.values())[-count:][0] if found else 0, self._zero + 1)
        ranked = sorted((-product, name) for name, product in found.items() if product >= bar)
        return {name: (-product - self._zero) * self._unit for product, name in ranked[:count]}


def best_cosines(
    similarity: Similarity, count: int, among: AbstractSet[str] | None, also: Iterable[str]
) -> dict[str, float]:
    every = among is not None and len(among) <= count
    cosines = similarity.of({*among, *also} if among is not None and every else also)
    found = {name: cosine for name, cosine in cosines.items() if cosine > 0}
    return found if every else found | similarity.best(count, among)


def _length(vector: Sequence[float]) -> float:
    return sqrt(sum(map(mul, vector, vector))) or 1.0


class Blend:
    """The weighted mean of the cosines of two models; see `Similarity`."""

    def __init__(self, one: Cosines, other: Cosines, part: float) -> None:
        self._one, self._other = one, other
        self._part, self._rest = part, 1 - part

    def of(self, names: Iterable[str]) -> dict[str, float]:
        names = list(names)
        one, other = self._one.of(names), self._other.of(names)
        return {
            name: self._part * one.get(name, 0.0) + self._rest * other.get(name, 0.0)
            for name in names
            if name in one or name in other
        }

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        means = self.of(dict.fromkeys([*self._one.names, *self._other.names]) if among is None else among)
        found = sorted((-mean, name) for name, mean in means.items() if mean > 0)
        return {name: -mean for mean, name in found[:count]}


_QUERY_CHARACTERS = 2_000
_NAME = 128
_DESCRIPTION = 260
_PARAMETERS = 8
_TAGS = 8


def text_of(entry: CatalogEntry, *, name_twice: bool = True) -> str:
    """The text of a tool that is embedded; `name_twice` is for a model that only adds words up."""
    definition = entry.definition
    own, server = definition.name[:_NAME], (entry.server or "")[:_NAME]
    parameters = [name[:_NAME] for name, _ in islice(entry.parameters(), _PARAMETERS)]
    description = " ".join((definition.description or "")[: 4 * _DESCRIPTION].split())[:_DESCRIPTION]
    parts = (
        server,
        own if name_twice else "",
        f"{own}:",
        _renaming(entry),
        (definition.title or "")[:_NAME],
        *entry.tags[:_TAGS],
    )
    return " ".join(filter(None, [*parts, description, *parameters]))


def _renaming(entry: CatalogEntry) -> str:
    known = {*words_of(entry.definition.name[:_NAME]), *words_of((entry.server or "")[:_NAME])}
    return " ".join(word for word in words_of(entry.public_name[:_NAME]) if word not in known)


def _telling(query: str) -> str:
    """A query without stop words and numbers, unless it has nothing else: they blur the rest."""
    said = words_of(query)
    return " ".join(word for word in said if word not in STOP_WORDS and not word.isdigit()) or query


@final
class MeaningScorer:
    """Scores tools by the cosine of their word-piece vectors with the query's.

    Attributes:
        enough: The cosine at which meaning alone makes a tool worth showing; see `Scorer`.
        share: The part of the score that comes from meaning; see `Scorer`.
    """

    enough = 0.35
    share = 0.75

    def __init__(self, vectors: WordVectors | None = None) -> None:
        """Start empty.

        Args:
            vectors: The table; the built-in one if `None`.
        """
        self._vectors = vectors
        self._packed: PackedVectors | None = None

    @property
    def is_built_in(self) -> bool:
        """True if its table is the table of the package."""
        return self._vectors is None or self._vectors is built_in()

    def rest_on(self, base: VectorRows) -> None:
        """Begin with the vectors of a file; this scorer is empty so far."""
        self._packed = PackedVectors(built_in().dimensions, base)

    def row(self, name: str) -> bytes | None:
        """The vector of a tool, as a file holds it."""
        return None if self._packed is None else self._packed.row(name)

    def add(self, entries: Iterable[CatalogEntry]) -> None:
        """Index entries whose public names are not indexed yet."""
        for entry in entries:
            vector = self._table().encode(text_of(entry))
            if vector is None:
                continue
            if self._packed is None:
                self._packed = PackedVectors(self._table().dimensions)
            self._packed.put(entry.public_name, vector)
        if self._vectors is not None:
            self._vectors.forget()

    def remove(self, public_names: Iterable[str]) -> None:
        """Remove entries; names that are not indexed are ignored."""
        if self._packed is not None:
            for name in public_names:
                self._packed.drop(name)

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> Mapping[str, float]:
        """The cosines of the names closest in meaning to the query, and of those in `also`."""
        vector, packed = self._read(query), self._packed
        return {} if vector is None or packed is None else packed.nearest(vector, count, among, also)

    def compare(self, query: str, among: AbstractSet[str] | None = None) -> Cosines | None:
        """The similarity of every tool to the query; `None` if the table cannot read it."""
        vector, packed = self._read(query), self._packed
        return None if vector is None or packed is None else packed.cosines(vector, among=among)

    def _read(self, query: str) -> Sequence[int] | None:
        """The vector of a query; `None` if there is nothing to compare it with."""
        query = query[:_QUERY_CHARACTERS]
        if not self._packed or not is_latin(query):
            return None
        return self._table().encode(_telling(query), wordlike=True)

    def _table(self) -> WordVectors:
        if self._vectors is None:
            self._vectors = built_in()
        return self._vectors
