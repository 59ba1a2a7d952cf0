"""Compiled JSON Schema checks: `SchemaCheck`, for arguments before a tool runs and for structured results.

Each schema is compiled once by `jsonschema-rs`: a simple one when it has checked a few values, or does not
certainly accept one, any other at once. Regular expressions run in linear time where the pattern allows it,
else with bounded backtracking; nothing is fetched. Formats are annotations, as in the 2020-12 dialect.

`Effort` bounds what checking one value may cost, as neither its schema nor the value may be trusted: a few
lines of schema can hold each value against thousands of others, or ask of each character of a text in which
of thousands of states a regular expression may be. Nothing else runs meanwhile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import FrozenArray, FrozenObject, ToolDefinition, thawed
from mcp_toolset.tools.result import mapping_of

if TYPE_CHECKING:
    import jsonschema_rs


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
            name.rstrip("#").rpartition("/")[2]: mapping
            for mapping in mappings
            for keyword in ("$id", "$anchor", "$dynamicAnchor")
            if isinstance(name := mapping.get(keyword), str)
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
        target = self._named.get(base.rpartition("/")[2]) if base else self._schema
        if fragment.startswith("/"):
            return resolved(target, f"#{fragment}")
        return self._named.get(fragment) if fragment else target


def resolved(schema: object, pointer: str) -> object:
    from urllib.parse import unquote

    target = schema
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = cast("Mapping[str, object]", target).get(key)
        elif isinstance(target, list):
            items = cast("list[object]", target)
            target = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
    return target


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
_MOST_STEPS: Final = 10**6
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
        left: The remaining budget for counted references in this check.
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
        self._missing = max((len(names) for names in required if isinstance(names, list)), default=0)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
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
            named = (mapping_of(mapping.get("patternProperties")) for mapping in self._mappings)
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
    """The largest number of states of a regular expression, with its counted repetitions written out."""
    sums, last = [0], 0
    for piece in _PIECE.finditer(pattern):
        if piece["least"] is not None:
            more = last * (max(int(piece["most"] or piece["least"]), int(piece["least"]), 1) - 1)
            sums[-1], last = min(sums[-1] + more, _MOST_STEPS), min(last + more, _MOST_STEPS)
        elif piece[0] == "(":
            sums.append(0)
        elif piece[0] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] = min(sums[-1] + last, _MOST_STEPS)
        elif piece[0] not in "*+?|^$":
            sums[-1], last = sums[-1] + 1, 1
    return min(sum(sums), _MOST_STEPS)


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


_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_LARGEST: Final = 2**31
_DIALECTS: Final = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-07/schema#",
    }
)
"""The dialects in which the keywords below mean the same."""


def is_simple(schema: Mapping[str, Any]) -> bool:
    """True if a schema has nothing but keywords that are known here, with values that no compiler refuses."""
    for keyword, value in schema.items():
        is_sound = _SOUND.get(keyword)
        if is_sound is None or not is_sound(value):
            return False
    return True


def _is_schema(value: object) -> bool:
    return isinstance(value, bool) or (
        isinstance(value, Mapping) and is_simple(cast("Mapping[str, Any]", value))
    )


def _is_text(value: object) -> bool:
    """True if it is a text that JSON can carry, which has no half of a surrogate pair."""
    return isinstance(value, str) and (value.isascii() or value.isprintable() or _is_encodable(value))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_number(value: object) -> bool:
    return (type(value) is int and abs(value) < _LARGEST) or (type(value) is float and isfinite(value))


def _is_scalar(value: object) -> bool:
    return value is None or _is_flag(value) or _is_text(value) or _is_number(value)


def _is_type(value: object) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _is_names(value) and bool(value) and _TYPES.issuperset(cast("list[str]", value))


def _is_names(value: object) -> bool:
    names = _items(value)
    return names is not None and all(map(_is_text, names)) and len(set(names)) == len(names)


def _items(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def _is_properties(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    table = cast("Mapping[Any, Any]", value)
    return all(map(_is_text, table)) and all(map(_is_schema, table.values()))


_SOUND: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("title", "description", "format"), _is_text),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("items", "additionalProperties"), _is_schema),
    "$schema": lambda value: isinstance(value, str) and value in _DIALECTS,
    "type": _is_type,
    "properties": _is_properties,
    "required": _is_names,
    "anyOf": lambda value: bool(items := _items(value)) and all(map(_is_schema, items)),
    "enum": lambda value: bool(items := _items(value)) and all(map(_is_scalar, items)),
    "const": _is_scalar,
    "default": lambda value: _is_scalar(value) or (isinstance(value, list | dict) and not value),
    "uniqueItems": _is_flag,
}


_TOLD: Final = frozenset(("title", "description", "default", "format", "$schema"))
_JUDGED: Final[Mapping[type, tuple[frozenset[str], Callable[[Mapping[str, Any], Any], bool]]]] = {
    str: (frozenset(("minLength", "maxLength")), lambda schema, text: _has_length(schema, text, "Length")),
    int: (frozenset(("minimum", "maximum")), lambda schema, number: _is_within(schema, number)),
    float: (frozenset(("minimum", "maximum")), lambda schema, number: _is_within(schema, number)),
    bool: (frozenset(), lambda schema, flag: True),
    type(None): (frozenset(), lambda schema, nothing: True),
    list: (frozenset(("items", "minItems", "maxItems")), lambda schema, items: _fit_items(schema, items)),
    dict: (
        frozenset(("properties", "required", "additionalProperties")),
        lambda schema, members: _fit_members(schema, members),
    ),
}
_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    str: ("string",),
    int: ("integer", "number"),
    float: ("number",),
    bool: ("boolean",),
    type(None): ("null",),
    list: ("array",),
    dict: ("object",),
}


def surely_fits(schema: Mapping[str, Any], value: object) -> bool:
    """True if a value is certain to fit a simple schema; `False` says nothing."""
    if (choices := schema.get("anyOf")) is not None:
        return schema.keys() <= {*_TOLD, "anyOf"} and any(surely_fits(choice, value) for choice in choices)
    kind = type(value)
    if kind not in _KINDS or schema.get("type") not in _KINDS[kind]:
        return False
    keywords, judge = _JUDGED[kind]
    return schema.keys() <= {*_TOLD, *keywords, "type"} and judge(schema, value)


def _has_length(schema: Mapping[str, Any], value: str | list[Any], of: str) -> bool:
    if isinstance(value, str) and not _is_text(value):
        return False
    return schema.get(f"min{of}", 0) <= len(value) <= schema.get(f"max{of}", _LARGEST)


def _is_within(schema: Mapping[str, Any], number: float) -> bool:
    return schema.get("minimum", -_LARGEST) <= number <= schema.get("maximum", _LARGEST)


def _fit_items(schema: Mapping[str, Any], items: list[Any]) -> bool:
    if not _has_length(schema, items, "Items"):
        return False
    each = schema.get("items")
    if not isinstance(each, Mapping):
        return not items
    return all(surely_fits(cast("Mapping[str, Any]", each), item) for item in items)


def _fit_members(schema: Mapping[str, Any], members: dict[Any, Any]) -> bool:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    return members.keys() >= set(required) and all(
        isinstance(properties.get(name), Mapping) and surely_fits(properties[name], member)
        for name, member in members.items()
    )


MAX_SCHEMA_DEPTH: Final = 64  # The largest nesting depth of a schema; deeper ones are refused unread.

MAX_EXPANSION: Final = 10_000
"""The largest number of subschemas to check one value against, references followed; a few lines of
schema can otherwise ask for billions."""

MAX_EXPRESSIONS: Final = 10_000  # Characters of a schema's regular expressions: they take long to compile.

MAX_PROBLEMS: Final = 5  # The number of problems in one message; a model corrects them step by step.
MAX_PROBLEM: Final = 400  # The characters of one problem: what does not fit may be a value of megabytes.
MAX_READ: Final = 100  # Problems to choose the first few from: the same arguments give the same text.
_SPARED: Final = 4  # Values that a simple schema may accept before it is compiled.


class SchemaCheck:
    """A compiled schema: tells whether a value is valid, and what is wrong with it."""

    __slots__ = ("_counted", "_effort", "_schema", "_spared", "_validator", "_where")

    def __init__(self, schema: Mapping[str, Any], *, tool: str, part: str) -> None:
        """Compile `schema`, at once if it may be unusable; `tool` and `part` are for messages."""
        where = f"tool {tool!r}: {part}"
        mappings = _mappings_in(schema, where)
        if sum(map(len, _expressions(mappings))) > MAX_EXPRESSIONS:
            raise DefinitionError(
                f"{where} has regular expressions of more than {MAX_EXPRESSIONS:,} characters; shorten them"
            )
        expansion = _Expansion(schema, where)
        if len(mappings) > MAX_EXPANSION or any(
            keyword in mapping for mapping in mappings for keyword in REFERRING
        ):
            expansion.check(mappings)
        self._schema, self._where = schema, where
        self._effort = Effort(mappings, expansion.size, partial(Branching, schema, mappings, _together))
        # The compiler takes 6 MB and 5 ms to load, which a server that is listed and searched does without.
        self._spared = _SPARED
        self._counted: jsonschema_rs.Validator | None = None
        self._validator = None if is_simple(schema) else self._compiled()

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def is_valid(self, value: object) -> bool:
        """True if `value` fits; what is too big to check, or has no JSON form, does not."""
        effort, validator = self._effort, self._validator
        try:
            given: Any = value
            # Nearly all arguments are small and flat: no function is called for them.
            is_flat = given.__class__ is dict and LEAVES.issuperset(map(type, given.values()))
            if is_flat and len(given) < FEW and not effort.names:
                effort.steps, effort.shares = 0, False
            else:
                effort.begin(value)
            if validator is not None and not effort.shares:
                return validator.is_valid(value)
            if validator is None and self._spared:
                self._spared -= 1
                if surely_fits(self._schema, value):
                    return True
            return self._fits(value)
        except ValueError:
            return False

    def problems(self, value: object) -> list[str]:
        try:
            return self._problems(value)
        except TooMuchError as fault:
            return [str(fault)]
        except ValueError as fault:
            return [f"no JSON can carry this: {fault}"]

    def misfit(self, tool: str, arguments: object) -> str:
        return f"Invalid arguments for {tool}: {'; '.join(self.problems(arguments))}"

    def _problems(self, value: object) -> list[str]:
        work, validator = self._effort.begin(value), self._validator or self._compiled()
        copied = self._effort.copied(value, work)
        if not self._effort.is_told(value, work, copied):
            # The library collects the problems of each choice, and of each choice in it.
            return [] if self._fits(value) else [_UNTOLD]
        if work <= MAX_REPORTED and copied <= MAX_COPIED:
            return sorted(_line(error) for error in islice(validator.iter_errors(value), MAX_READ))[
                :MAX_PROBLEMS
            ]
        # The library makes all errors at once, a kilobyte and a copy of the value each.
        error = _first(validator, value)
        return [] if error is None else [_line(error)]

    def _fits(self, value: object) -> bool:
        effort = self._effort
        if not effort.shares:
            return (self._validator or self._compiled()).is_valid(value)
        if self._counted is None:
            self._counted = _compile(thawed(dict(self._schema)), self._where, effort, counting=True)
        fits = self._counted.is_valid(value)
        if effort.left < 0:
            raise TooMuchError
        return fits

    def _compiled(self) -> jsonschema_rs.Validator:
        self._validator = _compile(thawed(dict(self._schema)), self._where, self._effort)
        return self._validator


def _first(validator: jsonschema_rs.Validator, value: object) -> jsonschema_rs.ValidationError | None:
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    return None


def _line(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    message = error.message
    if error.schema_path[-1:] == ["format"]:
        # An expression that is checked as a format, since formats are annotations.
        message = _EXPRESSION.join(message.rsplit(_FORMAT, 1))
    if len(message) > MAX_PROBLEM:
        # The value comes first, and what is wrong with it at the end.
        message = f"{message[: MAX_PROBLEM // 2]} … {message[-MAX_PROBLEM // 2 :]}"
    return f"{place.lstrip('.')}: {message}" if place else message


_FORMAT: Final = ' is not a "'
_EXPRESSION: Final = ' does not match "'

_UNTOLD: Final = "it does not fit the schema; what is wrong takes too long to be found out"

_APPLIED_LISTS: Final = ("allOf", "anyOf", "oneOf")
_APPLIED: Final = ("not", "if", "then", "else")
_APPLIED_MAPS: Final = ("dependentSchemas", "dependencies")


class _Expansion:
    """The number of subschemas that apply to one value, with references followed.

    A reference that leads back to itself at the same place is not counted again; one that passes through a
    property or an item first belongs to an ordinary recursive type.
    """

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        self._schema = schema
        self._where = where
        self._counts: dict[str, int] = {}
        self._open: list[str] = []

    def check(self, mappings: Sequence[Mapping[str, Any]]) -> None:
        self.count("#")
        for mapping in mappings:
            for reference in _references(mapping):
                self.count(reference)

    def count(self, pointer: str) -> int:
        """The subschemas behind a local reference; the compiler reports a target that is not a schema."""
        if pointer in self._counts:
            return self._counts[pointer]
        if pointer in self._open:
            raise DefinitionError(
                f"{self._where} refers from {pointer} to itself without end; break the loop"
            )
        if len(self._open) == MAX_SCHEMA_DEPTH:
            raise DefinitionError(f"{self._where} follows more than {MAX_SCHEMA_DEPTH} references in a row")
        self._open.append(pointer)
        self._counts[pointer] = self.size(resolved(self._schema, pointer))
        self._open.pop()
        return self._counts[pointer]

    def size(self, schema: object) -> int:
        """The subschemas that a value is held against which `schema` applies to."""
        if not isinstance(schema, Mapping):
            return 1
        keywords = cast("Mapping[str, Any]", schema)
        total = 1 + sum(map(self.size, _applied(keywords))) + sum(map(self.count, _references(keywords)))
        if total > MAX_EXPANSION:
            raise DefinitionError(
                f"{self._where} holds one value against more than {MAX_EXPANSION} subschemas; simplify it"
            )
        return total


def _applied(schema: Mapping[str, Any]) -> Iterator[object]:
    for keyword in _APPLIED_LISTS:
        listed: object = schema.get(keyword)
        yield from cast("list[object]", listed) if isinstance(listed, list) else ()
    for keyword in _APPLIED_MAPS:
        named: object = schema.get(keyword)
        yield from cast("Mapping[str, object]", named).values() if isinstance(named, Mapping) else ()
    yield from (schema[keyword] for keyword in _APPLIED if keyword in schema)


def _together(schema: Mapping[str, Any]) -> Iterator[object]:
    """Subschemas that hold the same value as a subschema; references are texts."""
    yield from _applied(schema)
    yield from (reference for keyword in REFERRING if isinstance(reference := schema.get(keyword), str))


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword in REFERRING:
        reference: object = schema.get(keyword)
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            yield reference


def _compile(
    schema: dict[str, Any], where: str, effort: Effort, *, counting: bool = False
) -> jsonschema_rs.Validator:
    # Importing it takes a tenth of this package's import time, and `import mcp_toolset` compiles nothing.
    import jsonschema_rs

    options: Any = jsonschema_rs.RegexOptions()
    try:
        return _guarded(schema, options, effort, counting)
    except jsonschema_rs.ValidationError as fault:
        if not (fault.schema_path and fault.message.endswith('is not a "regex"')):
            raise _refused(where, fault) from None
    except ValueError as fault:
        raise DefinitionError(f"{where} has no JSON form: {fault}") from None
    try:
        return _guarded(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS), effort, counting)
    except jsonschema_rs.ValidationError as fault:
        raise _refused(where, fault) from None


def _guarded(schema: dict[str, Any], options: Any, effort: Effort, counting: bool) -> jsonschema_rs.Validator:
    """The compiled schema, whose costly regular expressions have a budget."""
    from jsonschema_rs import FancyRegexOptions, validator_for

    def matcher(pattern: str) -> Callable[[str], bool]:
        return validator_for({"pattern": pattern}, pattern_options=options).is_valid

    # A fault is named by its place in the schema as it is.
    whole = validator_for(schema, validate_formats=False, pattern_options=options, offline=True)
    backtracks = isinstance(options, FancyRegexOptions)
    guards = Guards(effort, matcher, backtracks=backtracks, counting=counting)
    guarded = guards.guarded(schema)
    if not guards.formats and not counting:
        return whole

    class Counted:
        def __init__(self, *of: object) -> None: ...

        def validate(self, instance: object) -> None:
            if not effort.follow():
                raise TooMuchError

    return validator_for(
        guarded,
        formats=guards.formats,
        validate_formats=True,
        pattern_options=options,
        keywords=cast("Any", {COUNTED: Counted}),
        offline=True,
    )


def _refused(where: str, fault: jsonschema_rs.ValidationError) -> DefinitionError:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in fault.instance_path)
    pointer = "".join(f"/{step}" for step in steps) or "/"
    return DefinitionError(f"{where} is not a usable schema at {pointer}: {fault.message}")


def checks_of(definition: ToolDefinition) -> tuple[SchemaCheck, SchemaCheck | None]:
    arguments = SchemaCheck(definition.input_schema, tool=definition.name, part="inputSchema")
    if definition.output_schema is None:
        return arguments, None
    return arguments, SchemaCheck(definition.output_schema, tool=definition.name, part="outputSchema")


def _mappings_in(schema: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    mappings: list[Mapping[str, Any]] = []
    for depth, level in enumerate(levels(schema)):
        if depth == MAX_SCHEMA_DEPTH:
            raise DefinitionError(f"{where} is nested more than {MAX_SCHEMA_DEPTH} levels deep; flatten it")
        mappings += [cast("Mapping[str, Any]", item) for item in level if isinstance(item, dict | Mapping)]
    return mappings


def _expressions(mappings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for mapping in mappings:
        if isinstance(pattern := mapping.get("pattern"), str):
            yield pattern
        if isinstance(names := mapping.get("patternProperties"), Mapping):
            yield from cast("Mapping[str, Any]", names)


def depth_exceeds(value: object, limit: int) -> bool:
    return any(depth == limit for depth, _ in enumerate(levels(value)))
