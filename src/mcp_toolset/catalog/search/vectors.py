"""`WordVectors`: the built-in table of word-piece vectors, trained on descriptions of tools.

The vector of a text is the sum of its pieces' vectors. The table was distilled from a sentence model by
`scripts/train_search`; `word_vectors/table.json` has the details. Only whole numbers are used: the numbers of
a piece are side by side in one long integer, thirty-two bits each, so that adding two pieces is one addition.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from mcp_toolset.catalog.search.text import plain

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST_PIECE = 20
_LETTERS_WORTH = 2


def words_of(text: str) -> list[str]:
    """The lower-case words of a text, identifiers split: `getHTMLPage_v2` gives `get html page v 2`."""
    return [word.lower() for word in _WORD.findall(plain(text))]


def is_latin(text: str) -> bool:
    """Whether most of a text is in Latin letters; the table reads no others."""
    letters = [letter.isascii() for letter in plain(text) if letter.isalpha()]
    # A letter of a script without an alphabet says as much as several.
    return sum(letters) >= _LETTERS_WORTH * (len(letters) - sum(letters))


def pieces_of(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The places in the vocabulary of the pieces of one lower-case word; unknown letters are skipped."""
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
        """Use a table.

        Args:
            pieces: The vocabulary in order.
            scales: For each piece the factor of its row, at most 4,095.
            rows: The rows one after another, two numbers a byte: the low bits are the first half of a row.
        """
        self._stride = len(rows) // len(pieces)
        self.dimensions = 2 * self._stride
        self._vocabulary = {piece: place for place, piece in enumerate(pieces)}
        self._scales = scales
        self._rows = rows
        self._words: dict[str, int] = {}

    def encode(self, text: str, *, wordlike: bool = False) -> list[int] | None:
        """A vector for a text, of any length; `None` if no word of it is known.

        Args:
            text: The text; the first part of a long one.
            wordlike: Whether the result is also `None` if every word is only a string of short pieces, like
                codes and typing errors.
        """
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

    def forget(self) -> None:
        """Clear the cache of words, at the end of a batch of texts."""
        self._words.clear()

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
    """The table that comes with the package, read on first use."""
    table = files("mcp_toolset.catalog.search") / "word_vectors"
    pieces = (table / "pieces.txt").read_text("utf-8").split("\n")
    numbers = (table / "vectors.bin").read_bytes()
    scales = array("H", numbers[: _SCALE_BYTES * len(pieces)])
    if sys.byteorder == "big":
        scales.byteswap()
    return WordVectors(pieces, scales, numbers[_SCALE_BYTES * len(pieces) :])
