"""Walk JSON data: `copied`, so that readers cannot change what a caller sent, and `texts_in`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, cast

from mcp_toolset.errors import InvalidArgumentsError

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """A deep copy; values that JSON does not have are copied by `copy.deepcopy`.

    Raises:
        InvalidArgumentsError: the arguments are nested deeper than Python can follow.
    """
    try:
        return _copied_object(arguments)
    except RecursionError:
        raise InvalidArgumentsError(
            "the arguments are nested too deeply to be copied; flatten them"
        ) from None


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any] | tuple[Any, ...]", value):
            yield from texts_in(item)


def _copied_object(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value if type(value) in _LEAVES else _copied(value) for key, value in given.items()}


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return _copied_object(cast("dict[str, Any]", value))
    if type(value) is list:
        items = cast("list[Any]", value)
        return [item if type(item) in _LEAVES else _copied(item) for item in items]
    return deepcopy(value)
