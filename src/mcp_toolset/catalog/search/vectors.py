"""The built-in table of word-piece vectors: what words mean, as far as tools are concerned.

A text is the sum of its pieces. The table was distilled from a sentence model by `scripts/train_search`;
`word_vectors/table.json` says from what and how. All is whole-number arithmetic: the numbers of a piece lie
side by side in one long integer, thirty-two bits each, so that adding two pieces is one addition.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from mcp_toolset.catalog.search.wordpieces import pieces_of, words_of

_LANE_BYTES = 4
_SCALE_BYTES = 2
_MIDDLE = 128
# What the values of half a byte stand for, spaced so that normally distributed numbers lose least.
LEVELS = (-127, -96, -75, -58, -44, -30, -18, -6, 6, 18, 30, 44, 58, 75, 96, 127)
_LOW = bytes(_MIDDLE + LEVELS[value & 15] for value in range(256))
_HIGH = bytes(_MIDDLE + LEVELS[value >> 4] for value in range(256))
# A piece is a character or more, and a lane has room for so many: 255 × 4,095 × 4,000 < 2³².
_LONGEST_TEXT = 4_000
_CACHED_WORDS = 16_384
# Letters a piece, on the average, from which a word of several pieces is taken for a word.
_WORDLIKE = 3


class WordVectors:
    """One vector for each word piece; a text is the sum of its pieces."""

    def __init__(self, pieces: Sequence[str], scales: Sequence[int], rows: bytes) -> None:
        """Hold a table.

        Args:
            pieces: The vocabulary in order.
            scales: For each piece what 1 in its row is worth, at most 4,095.
            rows: The rows one after another, two numbers a byte: the low bits are the first half of a row.
        """
        self._stride = len(rows) // len(pieces)
        self.dimensions = 2 * self._stride
        self._vocabulary = {piece: place for place, piece in enumerate(pieces)}
        self._scales = scales
        self._rows = rows
        self._words: dict[str, int] = {}

    def encode(self, text: str, *, wordlike: bool = False) -> list[int] | None:
        """A vector for a text, of no particular length; `None` if no word of it is known.

        Args:
            text: The text, of which so much is read as a vector has room for.
            wordlike: Whether it is `None`, too, if no word is more than a string of short pieces, as codes
                and slips of the pen are.
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
        """Free what is remembered of words, at the end of a batch of texts."""
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
        """The numbers of one piece, and after them how often 1 went in, which tells where 0 is."""
        both = self._rows[place * self._stride : (place + 1) * self._stride]
        lanes = bytearray(_LANE_BYTES * (self.dimensions + 1))
        lanes[::_LANE_BYTES] = both.translate(_LOW) + both.translate(_HIGH) + b"\1"
        return int.from_bytes(lanes, "little") * self._scales[place]


@cache
def built_in() -> WordVectors:
    """The table that comes with the package, read when it is first asked for."""
    table = files("mcp_toolset.catalog.search") / "word_vectors"
    pieces = (table / "pieces.txt").read_text("utf-8").split("\n")
    numbers = (table / "vectors.bin").read_bytes()
    scales = array("H", numbers[: _SCALE_BYTES * len(pieces)])
    if sys.byteorder == "big":
        scales.byteswap()
    return WordVectors(pieces, scales, numbers[_SCALE_BYTES * len(pieces) :])
