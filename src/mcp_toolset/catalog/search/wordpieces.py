"""Split text into word pieces: the longest pieces of a fixed vocabulary, from the start of each word.

The vocabulary is that of the WordPiece models (BERT): a piece that does not start a word is written with
`##` before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcp_toolset.catalog.search.text import plain

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST_PIECE = 20


def words_of(text: str) -> list[str]:
    """The lower-case words of a text, identifiers split: `getHTMLPage_v2` gives `get html page v 2`."""
    return [word.lower() for word in _WORD.findall(plain(text))]


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
