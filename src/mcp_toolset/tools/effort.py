"""`Effort`: bounds what checking one value may cost, as neither its schema nor the value may be trusted.

A few lines of schema can hold each value against thousands of others, or ask of each character of a text in
which of thousands of states a regular expression may be. Nothing else runs meanwhile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, cast

from mcp_toolset.tools.definition import FrozenArray, FrozenObject
from mcp_toolset.tools.result import mapping_of

_DEEPEST: Final = 64  # Subschemas of members and items that are followed into each other.
_LONGEST: Final = 500_000  # Subschemas that are looked at, of all places of a schema together.

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
    """Properties of one schema.

    Attributes:
        most: Subschemas that one value is held against at most, wherever it is; `beyond` if nobody knows.
        widest: Subschemas that hold one member or item each time their place is checked.
        recursive: True if a definition leads back to itself, through members or items.
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
    return max(
        sums[every] + max((number for place, number in sums.items() if place[0] == every != place), default=0)
        for every in (".", "[")
    )


MAX_CHECKS: Final = 2_000_000  # Subschemas times values of one check: about a quarter of a second.
MAX_STEPS: Final = 10_000_000  # States of regular expressions times characters of one check: about as long.
MAX_SHARED: Final = 10_000_000  # Of shared subschemas; beyond it, references that are followed are counted.
COUNTED: Final = "x-mcp-toolset-counted"  # The keyword that counts them.
MAX_TOLD: Final = 5_000  # Subschemas tried for problems, if choices have choices.
MAX_CHOSEN: Final = 100_000  # Subschemas times values up to which choices tell their problems.
MAX_COPIED: Final = 50_000_000  # Characters in all problems of a value: each has a copy of it.
MAX_REPORTED: Final = 10_000  # Subschemas times values up to which all problems are collected.
FEW_STATES: Final = 16  # States of an expression that is certain to be fast.
BACKTRACKS: Final = 10_000  # Steps back that an expression with look-around may take in one text.

REFERRING: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_PER_TEXT: Final = 2_000
_PER_CHARACTER: Final = 100
"""Cost of such an expression for a text, and for each of its characters, which it may read again."""

FEW: Final = 30  # Values that are held against any schema that has no expressions for names.

_PER_FLOAT: Final = 10
_LARGEST: Final = 10**6
LEAVES: Final = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, FrozenObject, FrozenArray})
_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
_PIECE: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<least>\d{1,7})(?:,(?P<most>\d{0,7}))?\}|.", re.DOTALL
)


class TooMuchError(ValueError):
    """A check would take too long."""

    def __init__(self) -> None:
        super().__init__("it is too big to be checked against this schema; send less at once")


class Effort:
    """The cost that one schema allows, and the cost of the check at hand so far.

    Attributes:
        names: True if names are held against expressions.
        left: What the references that are counted may still cost in this check.
        shares: True if they are to be counted.
        steps: The steps of regular expressions in this check.
    """

    __slots__ = (
        *("_branching", "_chooses", "_each", "_look", "_mappings", "_missing", "_refers", "_sized"),
        *("left", "names", "shares", "steps"),
    )

    def __init__(
        self,
        mappings: Sequence[Mapping[str, Any]],
        sized: Callable[[Mapping[str, Any]], int],
        look: Callable[[int], Branching],
    ) -> None:
        """`sized` tells how many subschemas hold a value beside one of `mappings`."""
        self._look = look
        self._branching: Branching | None = None
        self._mappings, self._sized = mappings, sized
        self._refers = any(keyword in one for one in mappings for keyword in REFERRING)
        self._chooses = any(keyword in one for one in mappings for keyword in ("anyOf", "oneOf"))
        required: Iterator[object] = (one.get("required") for one in mappings)
        self._missing = max((len(found) for found in required if isinstance(found, list)), default=0)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        self.names = any("patternProperties" in mapping for mapping in mappings)
        self._each: tuple[int, int] | None = None
        self.left = self.steps = 0
        self.shares = False

    def begin(self, value: object) -> int:
        """The subschemas times the values of a check that begins; `TooMuchError` if they are too many."""
        self.steps = 0
        count = 1 + sum(sum(map(len, level)) for level in levels(value))
        self.left = MAX_SHARED
        self.shares = self._seen().most * count > MAX_SHARED
        if self.shares and not self._refers:
            raise TooMuchError
        if count <= FEW and not self.names:
            return count
        each, states = self._most()
        if states:
            self.spend(states * sum(map(len, _names_in(value))))
        if count > FEW and each * count > MAX_CHECKS:
            raise TooMuchError
        return each * count

    def copied(self, value: object, work: int) -> int:
        # The work of few values is their number.
        """The characters of all problems that a value can have, each of which holds a copy of it."""
        each = self._most()[0] if work <= FEW else 1
        return work * each * (1 + self._missing) * _length(value)

    def is_told(self, value: object, work: int, copied: int) -> bool:
        """True if the problems of a value can be collected: each choice has those of the choices in it."""
        seen, told = self._seen(), 1
        if self._chooses and (work > MAX_CHOSEN or copied > MAX_COPIED):
            return False
        if seen.widest == 1 or self.shares:
            return not self.shares
        if not seen.recursive:
            return seen.most * sum(len(item) for level in levels(value) for item in level) <= MAX_REPORTED
        for _ in levels(value):
            told *= seen.widest
            if told > MAX_TOLD:
                return False
        return True

    def _seen(self) -> Branching:
        if self._branching is None:
            self._branching = self._look(MAX_SHARED)
        return self._branching

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TooMuchError

    def follow(self) -> bool:
        """Count a reference that is followed; whether it may be."""
        self.left -= self._most()[0]
        return self.left >= 0

    def _most(self) -> tuple[int, int]:
        """The most subschemas, and states of expressions for names, that one value is held against."""
        if self._each is None:
            each = max(self._sized(one) + sum(_slow(one)) for one in self._mappings)
            named = (mapping_of(one.get("patternProperties")) for one in self._mappings)
            names = max(sum(map(states_of, one)) for one in named)
            self._each = each, names
        return self._each


class Guards:
    """Replaces costly expressions of a schema by `formats`, whose checks stay within its effort."""

    def __init__(
        self,
        effort: Effort,
        matcher: Callable[[str], Callable[[str], bool]],
        *,
        backtracks: bool,
        counting: bool = False,
    ) -> None:
        self._effort, self._matcher, self._backtracks = effort, matcher, backtracks
        self._counting = counting
        self.formats: dict[str, Callable[[str], bool]] = {}

    def guarded(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self.guarded(item) for item in cast("list[Any]", part)]
        if not isinstance(part, dict):
            return part
        table = cast("dict[str, Any]", part)
        copy = {
            keyword: self._value(keyword, value) for keyword, value in table.items() if keyword != "format"
        }
        pattern = copy.get("pattern")
        if isinstance(pattern, str) and (self._backtracks or states_of(pattern) > FEW_STATES):
            copy["format"] = copy.pop("pattern")
            self.formats[pattern] = self._check(pattern)
        return self._with_counts(copy) if self._counting else copy

    def _with_counts(self, table: dict[str, Any]) -> dict[str, Any]:
        """A subschema that follows no reference before it is counted."""
        followed = [{keyword: table.pop(keyword)} for keyword in REFERRING if keyword in table]
        if followed:
            counted = [{"if": {COUNTED: True}, "then": one, "else": False} for one in followed]
            table["allOf"] = [*counted, *table.get("allOf", ())]
        return table

    def _value(self, keyword: str, value: Any) -> Any:
        if keyword in _MAPS and isinstance(value, dict):
            return {name: self.guarded(item) for name, item in cast("dict[str, Any]", value).items()}
        return value if keyword in _VALUES else self.guarded(value)

    def _check(self, pattern: str) -> Callable[[str], bool]:
        matches, effort = self._matcher(pattern), self._effort
        each = states_of(pattern) + (_PER_CHARACTER if self._backtracks else 0)
        text = _PER_TEXT if self._backtracks else 0

        def check(value: str) -> bool:
            effort.spend(each * len(value) + text)
            return matches(value)

        return check


def states_of(pattern: str) -> int:
    """How many states a regular expression has at most, its counted repetitions written out."""
    sums, last = [0], 0
    for piece in _PIECE.finditer(pattern):
        if piece["least"] is not None:
            more = last * (max(int(piece["most"] or piece["least"]), int(piece["least"]), 1) - 1)
            sums[-1], last = min(sums[-1] + more, _LARGEST), min(last + more, _LARGEST)
        elif piece[0] == "(":
            sums.append(0)
        elif piece[0] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] = min(sums[-1] + last, _LARGEST)
        elif piece[0] not in "*+?|^$":
            sums[-1], last = sums[-1] + 1, 1
    return min(sum(sums), _LARGEST)


def levels(value: object) -> Iterator[list[Any]]:
    level: list[Any] = [value] if _is_container(value) else []
    while level:
        yield level
        # The type of a leaf is asked here, as most values are leaves.
        level = [
            child
            for item in level
            if item
            for child in _children(item)
            if type(child) not in LEAVES and _is_container(child)
        ]


def is_wide(value: object, most: int) -> bool:
    """True if a value has more than `most` values; no more of it is looked at."""
    return any(total > most for total in accumulate(sum(map(len, level)) for level in levels(value)))


def _length(value: object) -> int:
    total = len(value) if isinstance(value, str) else 0
    for level in levels(value):
        for item in level:
            children = _children(item)
            total += _letters(children) + (0 if children is item else _letters(item))
    return total


def _letters(items: Collection[object]) -> int:
    """The characters of the texts among some values."""
    if len(items) > FEW and (kinds := set(map(type, items))) <= LEAVES:
        # All in one step, if they are texts alone, or none is.
        if kinds == {str}:
            return sum(map(len, cast("Collection[str]", items)))
        if str not in kinds:
            return 0
    return sum([len(text) for text in items if isinstance(text, str)])


def texts_in(item: Any) -> Iterator[Any]:
    yield from item
    if isinstance(item, Mapping):
        yield from cast("Mapping[str, Any]", item).values()


def _is_container(value: object) -> bool:
    kind = type(value)
    return kind in _CONTAINERS or (kind not in LEAVES and isinstance(value, Mapping | list))


def _children(item: object) -> Collection[object]:
    kind = type(item)
    if kind is dict or (kind is not list and isinstance(item, Mapping)):
        return cast("Mapping[str, object]", item).values()
    return cast("Collection[object]", item)


def _names_in(value: object) -> Iterator[str]:
    for level in levels(value):
        for item in level:
            if isinstance(item, Mapping):
                yield from cast("Mapping[str, Any]", item)


def _slow(schema: Mapping[str, Any]) -> Iterator[int]:
    """Cost of keywords that take longer than a subschema; texts and integers are looked up."""
    listed: object = schema.get("enum")
    if isinstance(listed, list):
        yield from (
            _PER_FLOAT if type(one) is float else not isinstance(one, str)
            for one in cast("list[Any]", listed)
        )
    if type(schema.get("multipleOf")) is float:
        yield _PER_FLOAT * 5
