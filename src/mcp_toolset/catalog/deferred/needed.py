"""`needed`: a definition as a model needs it to call the tool, in as few tokens as that takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

_UNNEEDED: Final = frozenset(("outputSchema", "execution", "icons", "_meta", "title"))
_TOLD: Final = ("readOnlyHint", "destructiveHint")
_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")
_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 16
"""Levels of a schema that are looked at; what is deeper stays as it is."""


def needed(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without what is empty, and without what only programs read."""
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    kept = {key: value for key, value in definition.items() if key not in _UNNEEDED}
    kept["annotations"] = {key: hints[key] for key in _TOLD if hints.get(key) is not None}
    kept["inputSchema"] = {
        key: value for key, value in _plain(kept["inputSchema"], None, 0).items() if key != "title"
    }
    return {key: value for key, value in kept.items() if value not in _EMPTY}


def _plain(schema: Mapping[str, Any], name: str | None, depth: int) -> dict[str, Any]:
    """A schema without its dialect, and without titles that only repeat the name of a property."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and _is_repeated(value, name)):
            continue
        if key in ("description", "required", "default") and value in (None, [], ""):
            continue
        found[key] = value if depth == _DEEPEST else _part(key, value, name, depth + 1)
    return found


def _part(key: str, value: Any, name: str | None, depth: int) -> Any:
    if key in _MAPS and isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {each: _schema(part, each, depth) for each, part in table.items()}
    if key in _LISTS and isinstance(value, list | tuple):
        return [_schema(part, name, depth) for part in cast("list[Any]", value)]
    return _schema(value, name, depth) if key == "items" else value


def _schema(value: Any, name: str | None, depth: int) -> Any:
    return _plain(cast("Mapping[str, Any]", value), name, depth) if isinstance(value, Mapping) else value


def _is_repeated(title: object, name: str | None) -> bool:
    if name is None or not isinstance(title, str):
        return False
    return title.replace(" ", "").casefold() == name.replace("_", "").casefold()
