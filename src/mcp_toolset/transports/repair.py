"""Repair messages that a strict JSON reader refuses, so that one broken entry does not cost the whole list.

The reader refuses lone surrogates (half of a character, left by a server that cuts texts in the middle) and
values that are nested more than 200 levels deep. As a rule both come from one entry of a list.
A repaired entry is marked, so that the catalog sets that entry aside.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from mcp_toolset.catalog.snapshot import LOST_CHARACTER

MAX_DEPTH: Final = 150
"""Levels of a message that are kept. Schemas may have far fewer, so that a cut one is refused as too deep."""

MAX_BRACKETS: Final = 200_000
"""Objects and arrays of a message that is looked through for parts that are nested too deep for Python."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_TOO_DEEP: Final = "it is nested too deep to be read"
_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def repaired(line: bytes) -> Any:
    """The message in a line that could not be read strictly.

    What is nested too deep is cut in lists alone, whose entries are checked one by one.
    """
    try:
        message: object = json.loads(line)
    except RecursionError:
        message = json.loads(_shallow(line))
        if not _is_list(message):
            raise ValueError(_TOO_DEEP) from None
    return _kept(message, MAX_DEPTH, cut=_is_list(message))


def _shallow(line: bytes) -> bytes:
    """The text of a message, with `null` in the place of each part that is nested too deep."""
    if line.count(b"{") + line.count(b"[") > MAX_BRACKETS:
        raise ValueError(_TOO_DEEP)
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


def _kept(value: Any, levels: int, *, cut: bool) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(LOST_CHARACTER, value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        if not cut:
            raise ValueError(_TOO_DEEP)
        return None
    if isinstance(value, list):
        return [_kept(item, levels - 1, cut=cut) for item in cast("list[Any]", value)]
    items = cast("dict[str, Any]", value).items()
    return {_kept(key, 1, cut=cut): _kept(item, levels - 1, cut=cut) for key, item in items}
