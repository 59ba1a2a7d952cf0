"""`WordPieces`: text as the word pieces of a BERT vocabulary, as the model's own tokenizer makes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

_LONGEST_WORD = 100
_CHARACTERS = 4_000
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_LEFT_OUT: Final = frozenset({"Mn", "Cc", "Cf"})


class WordPieces:
    """The pieces of a vocabulary of lower-case words without accents."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """Use a vocabulary, in which a piece that goes on with a word begins with `##`."""
        self._places = {piece: place for place, piece in enumerate(pieces)}
        self._unknown = self._places["[UNK]"]
        self._first, self._last = self._places["[CLS]"], self._places["[SEP]"]

    def read(self, text: str, most: int) -> list[int]:
        """The places of at most `most` pieces of a text, with the marks of its beginning and its end."""
        read: list[int] = []
        for word in _spaced(text[:_CHARACTERS]).split():
            if len(read) >= most - 2:
                break
            read += self._pieces(word)
        return [self._first, *read[: most - 2], self._last]

    def _pieces(self, word: str) -> Iterator[int]:
        places = list(self._greedy(word)) if len(word) <= _LONGEST_WORD else [None]
        yield from [self._unknown] if None in places else [place for place in places if place is not None]

    def _greedy(self, word: str) -> Iterator[int | None]:
        """The longest piece at each place of a word; `None` where there is none."""
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._places), None)
            if end is None:
                yield None
                return
            yield self._places[mark + word[start:end]]
            start = end


def _spaced(text: str) -> str:
    """The text in lower case without accents, with blanks around punctuation and Chinese characters."""
    return "".join(map(_blank_around, unicodedata.normalize("NFD", text.lower())))


def _blank_around(letter: str) -> str:
    if letter.isalnum() and letter.isascii():
        return letter
    if letter.isspace():
        return " "
    category = unicodedata.category(letter)
    if category in _LEFT_OUT:
        return ""
    is_mark = category.startswith("P") or letter.isascii() or _HAN.match(letter)
    return f" {letter} " if is_mark else letter
