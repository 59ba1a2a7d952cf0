"""Hidden text: characters that are invisible, reorder a line or steer a terminal, and their removal.

Tag characters, variation selectors and zero-width characters carry invisible words; bidirectional overrides
show words in another order; escape sequences steer a terminal. Where real writing has such characters, as
Persian has joiners and the flag of Wales tags, they are kept. `hidden_characters` has the rules for all but
plain ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Literal, cast

HiddenTextPolicy = Literal["strip", "flag", "refuse"]
"""The treatment of a definition that has hidden characters: clean it where that is safe, serve it with a
note, or set it aside."""


def _is_plain(text: str) -> bool:
    return text.isascii() and (text.isprintable() or text.translate(_SPACES).isprintable())


_SPACES: Final = {ord(space): " " for space in "\t\n\r"}


def cleaned(text: str) -> str:
    """The text without hidden characters: escape sequences go whole, line separators become line breaks."""
    if _is_plain(text):
        return text
    from mcp_toolset.tools.hidden_characters import without_hidden

    return without_hidden(text)


def hidden_in(text: str) -> tuple[str, ...]:
    if _is_plain(text):
        return ()
    from mcp_toolset.tools.hidden_characters import hidden_kinds

    return hidden_kinds(text)


def cleaned_metadata(value: object) -> object:
    """A JSON value with every text in it cleaned, keys included, for metadata; itself if it was clean."""
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


def visible(text: str, spelled: Callable[[str], str] = lambda one: f"\\u{{{ord(one):x}}}") -> str:
    r"""The text with an escape such as `\u{200b}`, or `spelled`, for each character that may be hidden."""
    if _is_plain(text):
        return text
    from mcp_toolset.tools.hidden_characters import spelled_out

    return spelled_out(text, spelled)


def in_log(value: object) -> str:
    r"""A stranger's text for one line of a log: visible, with `\n` for a line break."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return visible(text).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def plain_to_see(text: str) -> str:
    """Equivalent JSON text, with a JSON escape for each character that may be hidden."""
    return visible(text, _in_json)


def _in_json(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isascii() else json.dumps(character)[1:-1]
