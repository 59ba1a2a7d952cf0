"""The built-in table of word-piece vectors: what words mean, as far as tools are concerned (X9).

A text is the sum of its pieces. The table was distilled from a sentence model by `scripts/train_search`;
`vectors/table.json` says from what and how. All is whole-number arithmetic: the numbers of a piece lie side
by side in one long integer, thirty-two bits each, so that adding two pieces is one addition.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import sqrt
from operator import mul

from mcp_toolset.catalog.wordpieces import pieces_of, words_of

_LANE_BYTES = 4
_SCALE_BYTES = 2
# Half a byte a number, 8 standing for 0.
_MIDDLE = 8
_LOW = bytes(value & 15 for value in range(256))
_HIGH = bytes(value >> 4 for value in range(256))
# A lane holds the sum of so many pieces at the least, a piece being a character or more.
_LONGEST_TEXT = 8_000
_CACHED_WORDS = 2_048


class WordVectors:
    """One vector for each word piece; texts become unit vectors."""

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

    def encode(self, text: str) -> list[float] | None:
        """A unit vector for a text; `None` if no word of it is known."""
        total = sum(map(self._word, words_of(text[:_LONGEST_TEXT])))
        lanes = array("I", total.to_bytes(_LANE_BYTES * (self.dimensions + 1), "little"))
        if sys.byteorder == "big":
            lanes.byteswap()
        nothing = _MIDDLE * lanes.pop()
        numbers = [number - nothing for number in lanes]
        length = sqrt(sum(map(mul, numbers, numbers)))
        return [number / length for number in numbers] if length else None

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
    table = files("mcp_toolset.catalog") / "vectors"
    pieces = (table / "pieces.txt").read_text("utf-8").split("\n")
    numbers = (table / "vectors.bin").read_bytes()
    scales = array("H", numbers[: _SCALE_BYTES * len(pieces)])
    if sys.byteorder == "big":
        scales.byteswap()
    return WordVectors(pieces, scales, numbers[_SCALE_BYTES * len(pieces) :])
