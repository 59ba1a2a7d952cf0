"""Repair messages that a strict JSON reader refuses, so that one broken entry does not cost the whole list.

The reader refuses lone surrogates (half of a character, left by a server that cuts texts in the middle) and
values that are nested more than 200 levels deep. As a rule both come from one entry of a list.
A repaired entry is marked, so that the catalog sets that entry aside.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from pydantic_core import from_json

from mcp_toolset.catalog.snapshot import LOST_CHARACTER
from mcp_toolset.protocol.codec import check_weight

MAX_DEPTH: Final = 150
"""Levels of a message that are kept. Schemas may have far fewer, so that a cut one is refused as too deep."""

MAX_REPAIRED: Final = 1_000_000
"""What the values of a message that is repaired may weigh, each escape 1, each kilobyte 32."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A text to its end, also one that has none; or what opens or closes."""
_TOO_DEEP: Final = "it is nested too deep to be read"
_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_BACKSLASH: Final = b"\1\1"
_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
)
"""One or both halves of a character, where `_BACKSLASH` stands for a backslash in a text."""
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def repaired(line: bytes) -> Any:
    """The message in a line that could not be read strictly.

    What is nested too deep is cut in lists alone, whose entries are checked one by one.
    """
    check_weight(line, MAX_REPAIRED - line.count(b"\\") - len(line) // 32)
    line = _whole(line)
    try:
        return from_json(line)
    except ValueError as fault:
        if "recursion" not in str(fault):
            raise
    message = from_json(_shallow(line))
    if not _is_list(message):
        raise ValueError(_TOO_DEEP)
    return message


def _whole(line: bytes) -> bytes:
    """The text of a message, without halves of characters."""
    if _BACKSLASH in line:
        raise ValueError("it has control characters")
    marked = line.removeprefix(b"\xef\xbb\xbf").replace(rb"\\", _BACKSLASH)
    lost = LOST_CHARACTER.encode()
    whole = _HALF.sub(lost, _PAIR.sub(lambda found: found[0] if found[1] else lost, marked))
    return whole.replace(_BACKSLASH, rb"\\")


def _shallow(line: bytes) -> bytes:
    """The text of a message, with `null` in the place of each part that is nested too deep."""
    pieces: list[bytes] = []
    depth = end = 0
    for found in _TOKEN.finditer(line):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                pieces += [line[end : found.start()], b"null"]
        elif found[0] in (b"]", b"}"):
            if depth == MAX_DEPTH + 1:
                end = found.end()
            depth -= 1
    return b"".join([*pieces, line[end:]])


def _is_list(message: object) -> bool:
    result: object = cast("dict[str, object]", message).get("result") if isinstance(message, dict) else None
    return isinstance(result, dict) and any(key in result for key in _LISTS)
