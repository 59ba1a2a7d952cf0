"""Lookalike names: names that imitate others with letters of another script, such as Cyrillic `а` in `pаy`.

Only words that mix scripts are suspect: `поиск_search` has two honest words. The letters are those that UTS
#39 ("Unicode Security Mechanisms") lists as confusable with basic Latin, in the scripts used for it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["lookalikes"]

_LIKE_LATIN: Final = frozenset(
    "АВЕЅІЈКМНОРСТУХҮԌԚԜаеорсухіјѕһԁԛԝҽҹпгӏѴѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιοκνρτυχγϲϳՕՍՏօսհոցզքԱᎪᏴᏟᎠᎬᎳᎷᎻᎫᏞᎡᏚᎢᏙᏔᏃⲟⲣⲥⲭⲞⲢⲤⲦ"
)
_WORD: Final = re.compile(r"[^\W_]+")


def lookalikes(name: str) -> str:
    """The letters of a name that look like Latin ones next to real Latin ones; empty if it is honest.

    Forms that are Latin letters by compatibility (full width, mathematical) count as well.
    """
    if name.isascii():
        return ""
    found = [letter for word in _WORD.findall(name) for letter in _mixed(word)]
    return "".join(dict.fromkeys(found))


def _mixed(word: str) -> list[str]:
    imitations = [letter for letter in word if letter in _LIKE_LATIN]
    forms = [letter for letter in word if not letter.isascii() and _is_latin_form(letter)]
    has_latin = any(letter.isascii() and letter.isalpha() for letter in word)
    return [*forms, *(imitations if has_latin or forms else ())]


def _is_latin_form(letter: str) -> bool:
    plain = unicodedata.normalize("NFKC", letter)
    return plain.isascii() and plain.isalnum() and unicodedata.category(letter)[0] == "L"
