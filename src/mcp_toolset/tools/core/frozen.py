"""JSON data: frozen, so that a definition stays the one whose schemas were compiled; copied; and its texts.

A frozen object is a `dict`, a frozen array a `list`: they are read, compared and written as JSON like any
other. Methods that would change them raise `TypeError`; `thawed`, `copy.copy` and `copy.deepcopy` give plain
data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from mcp_toolset.errors import InvalidArgumentsError

MAX_DEPTH: Final = 200
"""The number of levels that are frozen; a schema that is nested deeper is refused when it is compiled."""

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def _refused(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the definition of a tool cannot be changed in place, as its schemas are compiled once; make a copy "
        "with copy.deepcopy() and another tool, or change it with a verb such as .with_arguments()"
    )


class FrozenObject(dict[str, Any]):
    """A JSON object that cannot be changed."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refused
        clear = pop = popitem = setdefault = update = _refused

    def copy(self) -> dict[str, Any]:
        """A plain copy; nested values stay frozen."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """A plain copy of all levels."""
        return cast("dict[str, Any]", thawed(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle`: an object is created anew, not filled."""
        return type(self), (dict(self),)


class FrozenArray(list[Any]):
    """A JSON array that cannot be changed."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused
        append = extend = insert = remove = pop = clear = sort = reverse = _refused

    def copy(self) -> list[Any]:
        """A plain copy; nested values stay frozen."""
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        """A plain copy of all levels."""
        return cast("list[Any]", thawed(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle`: an array is created anew, not filled."""
        return type(self), (list(self),)


def frozen(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A frozen copy of the value; a frozen value is returned itself."""
    kind = cast("type[object]", type(value))
    if kind in _LEAVES or kind is FrozenObject or kind is FrozenArray or not depth:
        return value
    if kind is dict or isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return FrozenObject({key: frozen(one, depth - 1) for key, one in members.items()})
    if isinstance(value, list | tuple):
        items = [frozen(one, depth - 1) for one in cast("list[Any]", value)]
        return FrozenArray(items) if isinstance(value, list) else tuple(items)
    return value


def thawed(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A plain copy of the value; levels deeper than those that are frozen are not copied."""
    given: object = value
    if isinstance(given, dict) and depth:
        members = cast("dict[str, Any]", given)
        return {k: one if type(one) is str else thawed(one, depth - 1) for k, one in members.items()}
    if isinstance(given, list) and depth:
        items = cast("list[Any]", given)
        return [one if type(one) is str else thawed(one, depth - 1) for one in items]
    return value


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """A deep copy; values that JSON does not have are copied by `copy.deepcopy`."""
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
