"""The differences between two definitions of a tool, in a few lines that a model or a person can read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

MAX_LINES: Final = 8
"""The number of differences that are listed; the rest are counted."""

MAX_VALUE: Final = 100
"""The number of characters shown of one value."""

_ABSENT: Final = object()
_Wire = Mapping[str, Any]


def difference(old: _Wire, new: _Wire) -> list[str]:
    """The parts of a definition in wire form that differ, each as `path: before → after`.

    Texts of a definition come from strangers: each is shown as JSON and cut, so that none can be
    mistaken for a line of the list.
    """
    lines: list[str] = []
    found = _walk(old, new, "")
    for line in found:
        if len(lines) == MAX_LINES:
            lines.append(f"and {1 + sum(1 for _ in found)} more")
            break
        lines.append(line)
    return lines


def _walk(old: object, new: object, path: str) -> Iterator[str]:
    if _is_object(old) and _is_object(new):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
    elif old is _ABSENT or new is _ABSENT or json.dumps(old) != json.dumps(new):
        yield f"{_cut(json.dumps(path)[1:-1])}: {_shown(old)} → {_shown(new)}"


def _is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _shown(value: object) -> str:
    return "absent" if value is _ABSENT else _cut(json.dumps(value, ensure_ascii=True))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
