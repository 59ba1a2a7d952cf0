"""Hidden characters: which they are, where real writing has them, and how they are removed.

`hidden_text` uses this module for texts that are not plain ASCII. It is imported for the first such text,
because compiling its patterns takes as long as declaring a tool.

Rules: UAX #9 (bidirectional text), UAX #31 section 2.3 (joiners), UTS #51 (emoji sequences).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

_ESCAPE_SEQUENCES: Final = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"
)
_BREAKS: Final = re.compile("[\u2028\u2029\x85]")
_ALWAYS: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u115f\u1160\u17b4\u17b5\u180e\u202a-\u202e"
    "\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U00013430-\U0001345f\U00016fe4"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f\U000e0080-\U000e00ff\U000e01f0-\U000e0fff]"
)
_SELECTORS: Final = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_BY_CONTEXT: Final = re.compile(f"[\u034f\u061c\u200b-\u200f{_SELECTORS}\U000e0020-\U000e007f]")
_ISOLATES: Final = re.compile("[\u2066-\u2069]")
_SUSPECT: Final = re.compile(f"{_BREAKS.pattern}|{_ALWAYS.pattern}|{_BY_CONTEXT.pattern}|{_ISOLATES.pattern}")
_RIGHT_TO_LEFT: Final = re.compile(
    "[\u05be-\u05f4\u0620-\u06ff\u0700-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_FLAGS: Final = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
"""England, Scotland and Wales: the only tag sequences that are recommended for interchange."""

_JOINING: Final = re.compile(
    "[\u0590-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u18af\u1950-\u1cff\ua800-\uabff\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff]")
_IDEOGRAPH: Final = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_EMOJI: Final = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_KEYCAP: Final = "#*0123456789"
_NAMES: Final = {
    "\u034f": "combining grapheme joiners",
    "\u200b": "zero-width spaces",
    "\u200c": "zero-width joiners",
    "\u200d": "zero-width joiners",
    "\ufeff": "byte order marks",
    "\xad": "soft hyphens",
}


def without_hidden(text: str) -> str:
    if not _SUSPECT.search(text):
        return text
    text = _ESCAPE_SEQUENCES.sub("", text)
    text = _ALWAYS.sub("", _BREAKS.sub("\n", text))
    # Dropping characters makes others adjacent; a few rounds are enough, as each round only shortens runs.
    while (shorter := _without_loose_isolates(_without_strays(text))) != text:
        text = shorter
    return text


def hidden_kinds(text: str) -> tuple[str, ...]:
    clean = without_hidden(text)
    if clean == text:
        return ()
    counts: dict[str, int] = {}
    for character in _lost(text, clean):
        kind = _kind(character)
        counts[kind] = counts.get(kind, 0) + 1
    return tuple(f"{kind} ({count})" for kind, count in counts.items()) or ("line separators",)


def spelled_out(text: str, spelled: Callable[[str], str]) -> str:
    return _SUSPECT.sub(lambda found: spelled(found[0]), text)


def _lost(text: str, clean: str) -> Iterator[str]:
    """The characters that cleaning drops: those of the text that the cleaned text lacks."""
    kept = iter(clean)
    expected = next(kept, None)
    for character in text:
        if character == expected or (expected == "\n" and _BREAKS.match(character)):
            expected = next(kept, None)
        elif _SUSPECT.match(character):
            yield character


def _kind(character: str) -> str:
    if named := _NAMES.get(character):
        return named
    if "\U000e0000" <= character <= "\U000e007f":
        return "tag characters"
    if re.match(f"[{_SELECTORS}]", character):
        return "variation selectors"
    if character in "\u061c\u200e\u200f" or "\u202a" <= character <= "\u202e" or _ISOLATES.match(character):
        return "bidirectional controls"
    if unicodedata.category(character) == "Cc":
        return "control characters"
    return "lone surrogates" if unicodedata.category(character) == "Cs" else "invisible characters"


def _without_strays(text: str) -> str:
    """Remove characters that only have a meaning next to certain others, where those are missing."""
    if not _BY_CONTEXT.search(text):
        return text
    flags = {place for flag in _FLAGS.finditer(text) for place in range(flag.start() + 1, flag.end())}
    is_right_to_left = _RIGHT_TO_LEFT.search(text) is not None

    def kept(found: re.Match[str]) -> str:
        place = found.start()
        if place in flags:
            return found[0]
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        return found[0] if _belongs(found[0], before, after, is_right_to_left) else ""

    return _BY_CONTEXT.sub(kept, text)


def _belongs(character: str, before: str, after: str, is_right_to_left: bool) -> bool:
    match character:
        case "\u200c" | "\u200d":
            return _joins(character, before, after)
        case "\u200b":
            return bool(_UNSPACED.match(before) and _UNSPACED.match(after))
        case "\u034f":
            return _is_mark(after) and (_is_mark(before) or before.isalpha())
        case "\u061c" | "\u200e" | "\u200f":
            return is_right_to_left and not _BY_CONTEXT.match(before)
        case _:
            return _selects(character, before)


def _joins(character: str, before: str, after: str) -> bool:
    """Keep joiners between letters of scripts that join, after a virama (UAX #31), and within an emoji."""
    if character == "\u200d" and _EMOJI.match(after):
        return bool(_EMOJI.match(before)) or before == "\ufe0f"
    if _BY_CONTEXT.match(before) or _BY_CONTEXT.match(after) or not before:
        return False
    if unicodedata.combining(before) == 9:
        return True
    both = all(_is_mark(side) or side.isalnum() for side in (before, after))
    return both and bool(_JOINING.match(before) or _JOINING.match(after))


def _selects(character: str, before: str) -> bool:
    if character in "\ufe0e\ufe0f":
        return before != "" and (before in _KEYCAP or bool(_EMOJI.match(before)))
    if "\u180b" <= character <= "\u180f":
        return "\u1800" <= before <= "\u18af" and not _BY_CONTEXT.match(before)
    if "\U000e0020" <= character <= "\U000e007f":
        return False
    if "\ufe00" <= character <= "\ufe02" and before:
        return unicodedata.category(before) == "Sm" or bool(_IDEOGRAPH.match(before))
    return bool(_IDEOGRAPH.match(before))


def _is_mark(character: str) -> bool:
    return character != "" and unicodedata.category(character).startswith("M")


def _without_loose_isolates(text: str) -> str:
    """Keep isolates in lines where each is closed and there is something to isolate from."""
    if not _ISOLATES.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(line if _is_balanced(line) else _ISOLATES.sub("", line) for line in lines)


def _is_balanced(line: str) -> bool:
    depth = 0
    for match in _ISOLATES.finditer(line):
        depth += -1 if match[0] == "\u2069" else 1
        if depth < 0:
            return False
    return depth == 0 and _RIGHT_TO_LEFT.search(line) is not None
