"""Compiled JSON Schema checks: `SchemaCheck`, for arguments before a tool runs and for structured results.

Each schema is compiled once by `jsonschema-rs`: a simple one when it has checked a few values, or does not
certainly accept one, any other at once. Regular expressions run in linear time where the pattern allows it,
else with bounded backtracking; nothing is fetched. Formats are annotations, as in the 2020-12 dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import ToolDefinition, thawed
from mcp_toolset.tools.effort import (
    BACKTRACKS,
    COUNTED,
    FEW,
    LEAVES,
    MAX_COPIED,
    MAX_REPORTED,
    REFERRING,
    Branching,
    Effort,
    Guards,
    TooMuchError,
    levels,
    resolved,
)

if TYPE_CHECKING:
    import jsonschema_rs


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
        return schema.keys() <= {*_TOLD, "anyOf"} and any(surely_fits(one, value) for one in choices)
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
    return all(surely_fits(cast("Mapping[str, Any]", each), one) for one in items)


def _fit_members(schema: Mapping[str, Any], members: dict[Any, Any]) -> bool:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    return members.keys() >= set(required) and all(
        isinstance(properties.get(name), Mapping) and surely_fits(properties[name], one)
        for name, one in members.items()
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
        if len(mappings) > MAX_EXPANSION or any(keyword in one for one in mappings for keyword in REFERRING):
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
    told = error.message
    if error.schema_path[-1:] == ["format"]:
        # An expression that is checked as a format, since formats are annotations.
        told = _EXPRESSION.join(told.rsplit(_FORMAT, 1))
    if len(told) > MAX_PROBLEM:
        # The value comes first, and what is wrong with it at the end.
        told = f"{told[: MAX_PROBLEM // 2]} … {told[-MAX_PROBLEM // 2 :]}"
    return f"{place.lstrip('.')}: {told}" if place else told


_FORMAT: Final = ' is not a "'
_EXPRESSION: Final = ' does not match "'

_UNTOLD: Final = "it does not fit the schema; what is wrong takes too long to be found out"

_APPLIED_LISTS: Final = ("allOf", "anyOf", "oneOf")
_APPLIED: Final = ("not", "if", "then", "else")
_APPLIED_MAPS: Final = ("dependentSchemas", "dependencies")


class _Expansion:
    """How many subschemas apply to one value, references to the same place followed.

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
    found: list[Mapping[str, Any]] = []
    for depth, level in enumerate(levels(schema)):
        if depth == MAX_SCHEMA_DEPTH:
            raise DefinitionError(f"{where} is nested more than {MAX_SCHEMA_DEPTH} levels deep; flatten it")
        found += [cast("Mapping[str, Any]", item) for item in level if isinstance(item, dict | Mapping)]
    return found


def _expressions(mappings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for one in mappings:
        if isinstance(pattern := one.get("pattern"), str):
            yield pattern
        if isinstance(names := one.get("patternProperties"), Mapping):
            yield from cast("Mapping[str, Any]", names)


def depth_exceeds(value: object, limit: int) -> bool:
    return any(depth == limit for depth, _ in enumerate(levels(value)))
