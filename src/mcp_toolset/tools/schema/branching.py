"""`Branching`: how often a schema holds one value against itself, because references share its parts.

Twenty definitions that each name the next one twice, for the same property, hold a value twenty levels deep
against a million subschemas. The compiler remembers what it knows of a recursive definition, but not while
it collects problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

_DEEPEST: Final = 64
"""Subschemas of members and items that are followed into each other."""

_LONGEST: Final = 500_000
"""Subschemas that are looked at, of all places of a schema together."""

_EACH: Final = {
    "additionalProperties": ".",
    "unevaluatedProperties": ".",
    "items": "[",
    "contains": "[",
    "additionalItems": "[",
    "unevaluatedItems": "[",
}
"""Keywords whose subschema holds every member, or every item."""

_DIALECT: Final = ("https://json-schema.org/", "http://json-schema.org/")

Together = Callable[[Mapping[str, Any]], Iterable[object]]
"""The subschemas and the references, as texts, that hold a value together with a subschema."""


class Branching:
    """What is known of one schema.

    Attributes:
        most: Subschemas that one value is held against at most, wherever it is; `beyond` if nobody knows.
        widest: Subschemas that hold one member or item each time their place is checked.
        recursive: Whether a definition leads back to itself, through members or items.
    """

    __slots__ = (
        *("_beyond", "_known", "_left", "_named", "_open", "_schema", "_together"),
        *("most", "recursive", "widest"),
    )

    def __init__(
        self,
        schema: Mapping[str, Any],
        mappings: Sequence[Mapping[str, Any]],
        together: Together,
        beyond: int,
    ) -> None:
        """Look through `schema`, of which `mappings` are the objects."""
        self._schema, self._together, self._beyond = schema, together, beyond
        self._named = {
            name.rstrip("#").rpartition("/")[2]: one
            for one in mappings
            for keyword in ("$id", "$anchor", "$dynamicAnchor")
            if isinstance(name := one.get(keyword), str)
        }
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self._left = _LONGEST
        self.recursive, self.widest = False, 1
        self.most = self._of(schema)

    def _of(self, schema: object) -> int:
        """The subschemas that one value is held against, wherever it is in a value that `schema` holds."""
        if not isinstance(schema, Mapping):
            return 1
        key = id(cast("object", schema))
        if key in self._open:
            self.recursive = True
            return 1
        if key not in self._known:
            if len(self._open) == _DEEPEST or self._left < 0:
                return self._beyond
            self._open.add(key)
            self._known[key] = min(self._counted(cast("Mapping[str, Any]", schema)), self._beyond)
            self._open.discard(key)
        return self._known[key]

    def _counted(self, schema: Mapping[str, Any]) -> int:
        count, parts = 0, list[tuple[str, object]]()
        for one in self._all(schema):
            count += 1
            parts += (each for each in _parts(one) if isinstance(each[1], Mapping))
        self._left -= len(parts)
        self.widest = max(self.widest, _width(Counter(place for place, _ in parts)))
        sums = Counter[str]()
        for place, part in parts:
            sums[place] += self._of(part)
        return max(count, _width(sums))

    def _all(self, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The subschemas at one place; references that lead back there are refused elsewhere."""
        left: list[object] = [schema]
        while left and self._left >= 0:
            part = left.pop()
            self._left -= 1
            if isinstance(part, str):
                part = self._target(part)
            if isinstance(part, Mapping):
                mapping = cast("Mapping[str, Any]", part)
                yield mapping
                left += self._together(mapping)

    def _target(self, reference: str) -> object:
        base, _, fragment = reference.partition("#")
        if base.startswith(_DIALECT):
            # A schema as a value: the library knows this one.
            self.recursive, self.widest = True, max(self.widest, 2)
            return True
        found = self._named.get(base.rpartition("/")[2]) if base else self._schema
        if fragment.startswith("/"):
            return resolved(found, f"#{fragment}")
        return self._named.get(fragment) if fragment else found


def resolved(schema: object, pointer: str) -> object:
    """The value that a local reference such as `#/$defs/name` points to; `None` if there is none."""
    from urllib.parse import unquote

    found = schema
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = cast("Mapping[str, object]", found).get(key)
        elif isinstance(found, list):
            items = cast("list[object]", found)
            found = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
    return found


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The subschemas of members and items by their places; `.` and `[` are every place."""
    for keyword, part in schema.items():
        if keyword == "properties" and isinstance(part, Mapping):
            yield from ((f".{name}", one) for name, one in cast("Mapping[str, object]", part).items())
        elif keyword == "patternProperties" and isinstance(part, Mapping):
            yield from ((".", one) for one in cast("Mapping[str, object]", part).values())
        elif isinstance(part, list) and keyword in ("prefixItems", "items"):
            yield from ((f"[{number}", one) for number, one in enumerate(cast("list[object]", part)))
        elif keyword in _EACH:
            yield _EACH[keyword], part


def _width(sums: Counter[str]) -> int:
    """The most that one member or item has."""
    return max(
        sums[every] + max((number for place, number in sums.items() if place[0] == every != place), default=0)
        for every in (".", "[")
    )
