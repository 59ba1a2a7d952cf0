"""A copy of JSON data: what a caller sent stays as it was, whatever its readers do with it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, cast

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """A deep copy. Values that JSON does not have are copied as `copy.deepcopy` copies them."""
    return {key: value if type(value) in _LEAVES else _copied(value) for key, value in arguments.items()}


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return copied(cast("dict[str, Any]", value))
    if type(value) is list:
        items = cast("list[Any]", value)
        return [item if type(item) in _LEAVES else _copied(item) for item in items]
    return deepcopy(value)
