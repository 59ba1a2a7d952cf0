"""Risky text: words that a changed description gained and that can steer a model, such as an instruction.

`Pins` calls `text_gained` for a definition that differs from its pin. Each sign is compared by its words: a
reworded description with the same links, paths and credentials as before gains nothing. In doubt the tool is
quarantined; a person sees the difference and accepts it. docs/pins.md has the measured rates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.risky_patterns import ANOTHER_TOOL, INSTRUCTIONS, VALUES
from mcp_toolset.tools.core.definition import texts_in
from mcp_toolset.tools.text.hidden_text import cleaned, hidden_in

__all__ = ["Sign", "signs_in", "text_gained"]

_READ: Final = ("name", "title", "description", "annotations", "inputSchema", "outputSchema")
"""The parts of a definition that a model may read."""

_DIALECTS: Final = re.compile(r"https?://(?:www\.)?json-schema\.org/[\w./-]+#?")
_LETTERS: Final = 4
"""The number of letters from which a text counts as written in a writing system."""

MAX_TEXT: Final = 20_000
"""The number of characters of a definition that are checked; if a longer one changes, it counts as risky."""

_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[_.-][A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing in a text that can steer a model.

    Attributes:
        kind: Its kind: `link`, `path`, `instruction`, …
        value: Tells it from others of its kind, such as an address.
        rule: The rule that matched, for an instruction.
    """

    kind: str
    value: str
    rule: str = ""


def text_gained(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """What the texts of a canonical definition gained, a reason for each kind; empty for harmless rewording.

    The reasons quote nothing from the server, since models read them too.
    """
    before, after = _text_of(old), _text_of(new)
    if before == after:
        return ()
    if len(after) > MAX_TEXT:
        return (f"its text has more than {MAX_TEXT:,} characters, too many to be looked through",)
    known, words = frozenset(signs_in(before)), frozenset(_WORD.findall(before))
    gained = dict.fromkeys(
        sign
        for sign in signs_in(after)
        if sign not in known and not (sign.kind == ANOTHER_TOOL and sign.value in words)
    )
    return tuple(f"its text gained {said}" for said in dict.fromkeys(map(_said, gained)))


def signs_in(text: str) -> Iterator[Sign]:
    """Every sign in a text, including hidden characters."""
    for kind in hidden_in(text):
        yield Sign("hidden characters", kind.split(" (")[0])
    plain = _closed_up(unicodedata.normalize("NFKC", cleaned(text)))
    yield from _writing_systems(plain)
    for kind, pattern, value in VALUES:
        for found in pattern.finditer(plain):
            yield Sign(kind, value(found))
    folded = plain.casefold()
    for rule, pattern in INSTRUCTIONS:
        for found in pattern.finditer(folded):
            yield Sign("instruction", " ".join(found[0].split()), rule)


def _closed_up(text: str) -> str:
    """The text without runs of blanks, on which patterns would take more than linear time."""
    return "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)


def _writing_systems(text: str) -> Iterator[Sign]:
    """The writing systems of the words in a text; a new one may be used to instruct."""
    if text.isascii():
        return
    counts: dict[str, int] = {}
    for character in text:
        if not character.isascii() and character.isalpha():
            system = unicodedata.name(character, "UNKNOWN").split(" ")[0]
            if system != "LATIN":
                counts[system] = counts.get(system, 0) + 1
    for system, count in counts.items():
        if count >= _LETTERS:
            yield Sign("words in another writing system", system)


def _text_of(definition: Mapping[str, Any]) -> str:
    found = (text for key in _READ for text in texts_in(definition.get(key)))
    return "\n".join(text for text in found if not _DIALECTS.fullmatch(text))


def _said(sign: Sign) -> str:
    match sign.kind:
        case "instruction":
            return f"an instruction ({sign.rule})"
        case "hidden characters" | "words in another writing system":
            return sign.kind
        case kind if kind == ANOTHER_TOOL:
            return "the name of another tool"
        case kind:
            return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
