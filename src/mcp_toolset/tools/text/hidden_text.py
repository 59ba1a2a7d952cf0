"""Text that is not what it looks like: characters that hide, reorder a line or steer a terminal.

What a stranger writes is read by a model and shown to people. Tag characters, runs of variation selectors
and zero-width characters carry words that nobody sees; bidirectional overrides show words in another order;
escape sequences steer a terminal. The same characters are part of real writing: joiners in Persian, in
Indic scripts and in emoji, marks of direction in Hebrew and Arabic, selectors in Japanese names, tags in the
flags of England, Scotland and Wales. Those stay where writing has them, and go everywhere else.

Plain ASCII is told apart here; `hidden_characters` holds the patterns and rules for everything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Literal, cast, get_args

__all__ = ["HiddenTextPolicy", "cleaned", "cleaned_metadata", "hidden_in", "plain_to_see", "visible"]

HiddenTextPolicy = Literal["strip", "flag", "refuse"]
"""What becomes of a definition with hidden characters: cleaned where that is safe, passed on with a note,
or set aside."""

POLICIES: Final = cast("tuple[HiddenTextPolicy, ...]", get_args(HiddenTextPolicy))


def _is_plain(text: str) -> bool:
    """Whether a text is ASCII with nothing but visible characters, line breaks and tabs: most texts are."""
    return text.isascii() and (text.isprintable() or text.translate(_SPACES).isprintable())


_SPACES: Final = {ord(space): " " for space in "\t\n\r"}


def _braced(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def cleaned(text: str) -> str:
    """The text without what hides; plain text in any language comes back as it is.

    Line separators become line breaks and escape sequences go whole; everything else that hides is dropped.
    """
    if _is_plain(text):
        return text
    from mcp_toolset.tools.text.hidden_characters import without_hidden

    return without_hidden(text)


def hidden_in(text: str) -> tuple[str, ...]:
    """What hides in a text, by kind, with a number each; empty for plain text."""
    if _is_plain(text):
        return ()
    from mcp_toolset.tools.text.hidden_characters import hidden_kinds

    return hidden_kinds(text)


def cleaned_metadata(value: object) -> object:
    """A JSON value with every text in it cleaned, keys included: for titles, descriptions, instructions.

    For metadata that is shown and not acted upon, such as what is listed of prompts and resources.
    Nothing is copied that needs no cleaning.
    """
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        fresh = {cleaned_metadata(key): cleaned_metadata(item) for key, item in table.items()}
        return table if fresh == table else fresh
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        done = [cleaned_metadata(item) for item in items]
        return items if done == list(items) else done
    return value


def visible(text: str, spelled: Callable[[str], str] = _braced) -> str:
    r"""The text with an escape such as `\u{200b}` for each character that may hide, right or wrong.

    Args:
        text: Any text.
        spelled: Another way to write such a character.
    """
    if _is_plain(text):
        return text
    from mcp_toolset.tools.text.hidden_characters import spelled_out

    return spelled_out(text, spelled)


def in_log(value: object) -> str:
    r"""A text of somebody else's as it may stand in a line of a log: visible, with `\n` for a line break."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return visible(text).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def plain_to_see(text: str) -> str:
    """JSON text that says the same, with an escape of its own for each character that may hide."""
    return visible(text, _in_json)


def _in_json(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isascii() else json.dumps(character)[1:-1]
