"""`Tokenizer`: text as search terms, with folded words, split identifiers, light stems and stop words.

Every pattern here takes linear time. Callers cap the text, so hostile text costs no more than a long
description.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

_MAX_WORD = 40
_CACHED_WORDS = 65_536
# Normalisation sorts the marks of one letter in quadratic time, so it never gets many at once.
_PIECE = 128

_DIACRITICS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+")
_BESIDE_LETTERS = re.compile("[^A-Za-z0-9]+")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)*")
# The vowel signs of South and South-East Asian scripts are not in `\w`, but they belong to the word.
_SIGNS = "\u0900-\u0963\u0966-\u109f\u1780-\u17d3"
_LETTERS = rf"(?:(?!_)[\w{_SIGNS}])+"
_RUN = re.compile(rf"{_LETTERS}(?:[_-]+{_LETTERS})*")
_SOUTH_EAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3"
_EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_UNSPACED = _SOUTH_EAST_ASIAN + _EAST_ASIAN
_PARTICLE = "([\uac00-\ud7af])(?:에서|에게|으로|까지|부터|[을를은는이가에의와과로도])$"
_LONGEST_PARTICLE = 2
# Compiled by their first use: these take milliseconds, and most catalogs need none of them.
_SCRIPT = rf"[{_UNSPACED}]+|[^{_UNSPACED}]+"
_UNSPACED_CHARACTER = rf"[{_UNSPACED}]"
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_JOINT = re.compile(r"[_-]+")
_VOWEL = re.compile(r"[aeiouy]")
_ENGLISH = re.compile(r"\b(?:the|of|and|to|for|with|from|by|this|or|is)\b", re.IGNORECASE)
_SAMPLE, _SAMPLE_CHARACTERS = 50, 400
_ENDINGS = (("ly", "", 4), ("ment", "", 5), ("tion", "t", 3), ("sion", "s", 3), ("ator", "at", 3))

STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below both but
    by can could d did do does doing don down during each either etc few for from further had has have having
    he hello her here hers hi him his how however i if in into is isn it its itself just ll m may me might
    more most must my myself no nor not of off on once one only or other our ours out over own please re s
    same shall she should so some such t than thank thanks that the their theirs them then there these they
    this those through to too under until up us use used uses using ve very via was we were what when where
    whether which while who whom whose why will with within would you your yours yourself
    able anything currently different easily ensure especially given help helps interested know let like
    looking make makes many me much need needed needs particular perhaps really recommend something specific
    suggest tell want wanted wants wondering""".split()
)


def plain(text: str) -> str:
    """The text without compatibility forms, accents and vowel points; its case is kept."""
    if text.isascii():
        return text
    return "".join(_plain_piece(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))


def _plain_piece(text: str) -> str:
    return unicodedata.normalize("NFC", _DIACRITICS.sub("", unicodedata.normalize("NFKD", text)))


def folded(name: str) -> str:
    """The common form of spellings of a name: letters and digits only, without case."""
    if name.isascii():
        return _BESIDE_LETTERS.sub("", name).lower()
    return "".join(_JOINT.sub("", run) for run in runs(name)).casefold()


def runs(text: str) -> list[str]:
    """The words and identifiers of a text as they are written, a `snake_case` or `kebab-case` name whole."""
    return _ASCII_RUN.findall(text) if text.isascii() else _RUN.findall(plain(text))


def is_one_word(text: str) -> bool:
    """True if a text is a single word that no identifier rule would split."""
    parts = runs(text[: 2 * _MAX_WORD])
    return len(parts) == 1 and len(list(words(parts[0]))) == 1


def words(run: str) -> Iterator[str]:
    """The case-folded words of one run: its parts, and the whole where that adds something."""
    # `getHTMLPage` gives `get`, `html`, `page` and `gethtmlpage`; `ec2` gives `ec2` and `ec`; scripts that
    # are written without spaces give pairs of characters.
    if run.isascii():
        yield from _ascii_words(run)
        return
    for piece in _JOINT.split(run):
        for stretch in re.findall(_SCRIPT, piece):
            yield from _script_words(stretch)


def spoken_words(text: str) -> list[str]:
    spoken: list[str] = []
    for run in runs(text):
        spoken += [run] if run.isalpha() and run.islower() and run.isascii() else words(run)
    return list(dict.fromkeys(spoken))


def telling_words(text: str) -> list[str]:
    return [word for word in spoken_words(text) if word not in STOP_WORDS]


def is_english(texts: Iterable[str]) -> bool:
    """True if most of the first texts are English: they have words that other languages lack."""
    some = list(islice(filter(None, texts), _SAMPLE))
    return 2 * sum(_ENGLISH.search(text[:_SAMPLE_CHARACTERS]) is not None for text in some) > len(some)


def stem(word: str) -> str:
    """A light English stem: plurals, `-ing`, `-ed`, `-ion`, `-or`, `-ly`, `-ment` and a final `e` go."""
    # Lighter than Porter's, since names of tools differ in endings that it removes (`general`, `generate`).
    # Words with digits or of other scripts stay as they are.
    if len(word) < 4 or not word.isalpha() or not word.isascii():
        return word[:_MAX_WORD]
    word = word[:_MAX_WORD]
    for last, shortened in _BY_LAST_LETTER:
        if word[-1] in last:
            word = shortened(word)
    return word


class Tokenizer:
    """Turns text into terms and caches the terms of words, until told to forget."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._in_names: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}

    def terms(self, text: str) -> list[str]:
        result: list[str] = []
        known = self._known
        for run in runs(text):
            terms = known.get(run)
            if terms is None:
                terms = self._remember(run)
            result += terms
        return result

    def name_terms(self, name: str) -> list[str]:
        """The terms of a name, stop words included: in `get_help` they are what it is about."""
        result: list[str] = []
        for run in runs(name):
            terms = self._in_names.get(run)
            if terms is None:
                terms = self._remember_name(run)
            result += terms
        return result

    def forget(self) -> None:
        self._known.clear()
        self._in_names.clear()
        self._stems.clear()

    def _remember(self, run: str) -> tuple[str, ...]:
        if len(self._known) >= _CACHED_WORDS:
            self.forget()
        terms = self._known[run] = tuple(self._stem(word) for word in words(run) if word not in STOP_WORDS)
        return terms

    def _remember_name(self, run: str) -> tuple[str, ...]:
        if len(self._in_names) >= _CACHED_WORDS:
            self.forget()
        terms = self._in_names[run] = tuple(map(self._stem, words(run)))
        return terms

    def _stem(self, word: str) -> str:
        known = self._stems.get(word)
        if known is None:
            if len(self._stems) >= _CACHED_WORDS:
                self.forget()
            known = self._stems[word] = stem(word)
        return known


def _ascii_words(run: str) -> Iterator[str]:
    if run.islower() and run.isalpha():
        yield run
        return
    pieces = _JOINT.split(run)
    for piece in pieces:
        yield from _identifier_words(piece)
    if len(pieces) > 1 and len(run) <= _MAX_WORD:
        yield "".join(pieces).lower()


def _identifier_words(piece: str) -> Iterator[str]:
    parts = _PART.findall(piece)
    if len(parts) == 1 or len(piece) <= _MAX_WORD:
        yield piece.lower()
    if len(parts) > 1:
        yield from (part.lower() for part in parts if len(part) > 1 and part.isalpha())


def _script_words(stretch: str) -> Iterator[str]:
    if stretch.isascii():
        yield from _identifier_words(stretch)
    elif len(stretch) > 1 and re.match(_UNSPACED_CHARACTER, stretch):
        yield from _pairs(stretch)
    else:
        yield stretch.casefold()


def _pairs(stretch: str) -> Iterator[str]:
    """Pairs of characters; of one syllable of Korean and a particle also the syllable."""
    yield from (stretch[i : i + 2] for i in range(len(stretch) - 1))
    if len(stretch) <= _LONGEST_PARTICLE + 1 and (root := re.match(_PARTICLE, stretch)):
        yield root[1]


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + ("y" if len(word) > 4 else "ie")
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_inflection(word: str) -> str:
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) > 2 and _VOWEL.search(root):
            doubled = root[-1] == root[-2] and root[-1] not in "lsz"
            return root[:-1] if doubled else root
    return word


def _without_ending(word: str) -> str:
    for ending, kept, shortest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            return word[: -len(ending)] + kept
    return word


def _without_e(word: str) -> str:
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 and word[-2] not in "aeiou" else word


# Most words have none of these endings, and checking one letter is faster than checking every ending.
_BY_LAST_LETTER: Final = (
    ("s", _singular),
    ("gd", _without_inflection),
    ("ytnr", _without_ending),
    ("ey", _without_e),
)


_BETWEEN: Final = re.compile(
    r"[.!?;]+(?=\s|$)|\n+|[。！？；，、]|,(?=\s)|\s(?:and|then|also)(?=\s)", re.IGNORECASE
)
# With fewer telling words than this a clause says too little for a search.
_SHORTEST = 3
_MOST = 8
_MOST_CUTS = 32


def clauses_of(query: str) -> list[str]:
    """At most eight clauses of a query, in order; none if it has fewer than two."""
    clauses: list[str] = []
    for part in filter(None, map(str.strip, _BETWEEN.split(query, _MOST_CUTS))):
        if clauses and (_is_short(part) or _is_short(clauses[-1])):
            clauses[-1] = f"{clauses[-1]} {part}"
        else:
            clauses.append(part)
    return clauses[:_MOST] if len(clauses) > 1 else []


def _is_short(clause: str) -> bool:
    return len(telling_words(clause)) < _SHORTEST
