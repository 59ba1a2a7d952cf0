"""A copy of JSON data: what a caller sent stays as it was, whatever its readers do with it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, cast

from mcp_toolset.errors import InvalidArgumentsError

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """A deep copy. Values that JSON does not have are copied as `copy.deepcopy` copies them.

    Raises:
        InvalidArgumentsError: they are nested deeper than Python can follow.
    """
    try:
        return _copied_object(arguments)
    except RecursionError:
        raise InvalidArgumentsError(
            "the arguments are nested too deeply to be copied; flatten them"
        ) from None


def _copied_object(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value if type(value) in _LEAVES else _copied(value) for key, value in given.items()}


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return _copied_object(cast("dict[str, Any]", value))
    if type(value) is list:
        items = cast("list[Any]", value)
        return [item if type(item) in _LEAVES else _copied(item) for item in items]
    return deepcopy(value)
