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

_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def repaired(line: bytes) -> Any:
    """The message in a line that could not be read strictly.

    What is nested too deep is cut in lists alone, whose entries are checked one by one.

    Raises:
        ValueError: it is no JSON at all, or is nested too deep and is no list.
    """
    try:
        message: object = json.loads(line)
        return _kept(message, MAX_DEPTH, cut=_is_list(message))
    except RecursionError:
        raise ValueError("it is nested too deep to be read") from None


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
            raise ValueError("it is nested too deep to be read")
        return None
    if isinstance(value, list):
        return [_kept(item, levels - 1, cut=cut) for item in cast("list[Any]", value)]
    items = cast("dict[str, Any]", value).items()
    return {_kept(key, 1, cut=cut): _kept(item, levels - 1, cut=cut) for key, item in items}
