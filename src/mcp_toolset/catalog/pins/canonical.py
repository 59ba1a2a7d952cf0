"""The canonical form of a definition, equal for equivalent definitions; its digest; the parts of its schemas.

The order of keys says nothing in JSON, nor does the order of `required`, of the types in `type` or of the
values of `enum` (JSON Schema 2020-12, 6.1 and 6.5.3); servers that keep them in hash tables list them in
another order each time. `1` and `1.0` are the same number (4.2.2), `true` is not a number. Everything else
counts: texts that only look alike, or are equal under a normal form of Unicode, are different.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, Self, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.definition import ToolDefinition, texts_in
from mcp_toolset.tools.hidden_text import visible

SCHEMAS: Final = frozenset(
    (
        "items additionalItems additionalProperties unevaluatedItems unevaluatedProperties contains "
        "propertyNames not if then else contentSchema"
    ).split()
)
"""Keywords whose value is a schema."""

LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords whose value is a list of schemas; until 2019-09 `items` was one."""

TABLES_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value is an object of schemas."""

VALUES: Final = frozenset({"default", "example", "examples"})
"""Keywords that are not enforced, with values that a model may send unchanged."""

_WORDING: Final = frozenset(
    (
        "title description $comment deprecated readOnly writeOnly enumNames enumDescriptions "
        "markdownDescription"
    ).split()
)


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """A part of a schema: a `name` of a parameter, definition or unknown keyword; `wording` is only read."""

    kind: Literal["name", "wording", "pattern", "value"]
    path: str  # its place, from the schema's root
    value: Any  # its value


def only_says(key: str) -> bool:
    """True if a keyword is only read, not enforced; `x-mcp-header` is not: it puts values into headers."""
    return key in _WORDING or key in VALUES or (key.startswith("x-") and key != "x-mcp-header")


def parts(schema: Any, path: str = "") -> Iterator[SchemaPart]:
    if isinstance(schema, list):
        for place, part in enumerate(cast("list[Any]", schema)):
            yield from parts(part, f"{path}[{place}]")
    elif isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, Any]", schema).items():
            yield from _member_parts(path, key, value)


def _member_parts(path: str, key: str, value: Any) -> Iterator[SchemaPart]:
    step = f"{path}.{key}"
    if key in TABLES_OF_SCHEMAS and isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield SchemaPart("pattern" if key == "patternProperties" else "name", step, name)
            yield from parts(part, f"{step}.{name}")
    elif key in SCHEMAS or key in LISTS_OF_SCHEMAS:
        yield from parts(value, step)
    elif only_says(key) and key not in VALUES:
        yield SchemaPart("wording", step, value)
    else:
        yield SchemaPart("name", path, key)
        yield SchemaPart("pattern" if key == "pattern" else "value", step, value)


_SETS: Final = frozenset({"required", "type", "enum"})
_TABLES_OF_SETS: Final = frozenset({"dependentRequired", "dependencies"})


def canonical(definition: ToolDefinition) -> dict[str, Any]:
    wire = {key: _value(value) for key, value in definition.to_wire().items()}
    for key in ("inputSchema", "outputSchema"):
        if key in wire:
            wire[key] = _schema(wire[key])
    return wire


def digest_of(canonical_value: Any) -> str:
    """SHA-256 over a canonical value, as `sha256:` and hexadecimal digits."""
    return (
        f"sha256:{hashlib.sha256(plain_json(canonical_value).encode('utf-8', 'surrogatepass')).hexdigest()}"
    )


def plain_json(value: Any) -> str:
    """JSON with sorted keys and without spaces; equal for equal canonical values, and only for those."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _value(value: Any) -> Any:
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case Mapping():
            table = cast("Mapping[str, Any]", value)
            return {str(key): _value(item) for key, item in table.items()}
        case list() | tuple():
            return [_value(item) for item in cast("Iterable[Any]", value)]
        case _:
            return value


def _schema(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    return {key: _member(key, item) for key, item in table.items()}


def _member(key: str, value: Any) -> Any:
    if key in _SETS and isinstance(value, list):
        return _sorted(cast("list[Any]", value))
    if isinstance(value, dict) and key in (TABLES_OF_SCHEMAS | _TABLES_OF_SETS):
        table = cast("dict[str, Any]", value)
        return {name: _sorted_names(key, item) for name, item in table.items()}
    if isinstance(value, list) and key in LISTS_OF_SCHEMAS:
        return [_schema(item) for item in cast("list[Any]", value)]
    if key in SCHEMAS:
        return _schema(value)
    return cast("Any", value)


def _sorted_names(key: str, value: Any) -> Any:
    if key in _TABLES_OF_SETS and isinstance(value, list):
        return _sorted(cast("list[Any]", value))
    return _schema(value)


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=plain_json)


_MAX_ALIGNED: Final = 500
"""The number of lines that are compared line by line; longer texts are shown whole, old and new."""

_MOST_TOLD: Final = 5
_LONGEST: Final = 160  # characters of a value that is told in one line

_SPOKEN: Final = ("title", "description", "annotations", "outputSchema")
"""The texts that a model reads and that do not restrict its calls."""

_PROPOSED: Final = tuple(f".{key}" for key in VALUES)
_TYPES: Final = ("null", "boolean", "object", "array", "number", "integer", "string")
_NARROWING: Final = tuple(
    (
        "type enum required additionalProperties minimum maximum exclusiveMinimum exclusiveMaximum minLength "
        "maxLength minItems maxItems uniqueItems multipleOf"
    ).split()
)
"""Keywords that add no words to a schema."""


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()  # the value of a missing member; `null` is a value


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two canonical definitions differ."""

    path: str  # the keys that lead to it, joined by dots, as `visible` writes them
    before: Any  # the accepted value, or `ABSENT`
    after: Any  # the new value, or `ABSENT`

    def lines(self) -> Iterator[str]:
        """The difference as `-` and `+` lines, with nothing hidden and nothing left out."""
        before, after = _lines(self.before), _lines(self.after)
        if _look_alike(before, after):
            before, after = ([ascii(line)[1:-1] for line in side] for side in (before, after))
        if len(before) + len(after) > _MAX_ALIGNED:
            yield from (f"- {line}" for line in before)
            yield from (f"+ {line}" for line in after)
            return
        for line in difflib.ndiff(before, after):
            if line[0] in "-+":
                yield line.rstrip("\n")

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["path"], data.get("before", ABSENT), data.get("after", ABSENT))

    def to_json(self) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after}
        return {"path": self.path, **{key: side for key, side in sides.items() if side is not ABSENT}}


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    return [*_within("", old, new)]


def in_one_line(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    found = compared(old, new)
    told = [f"{each.path}: {_brief(each.before)} → {_brief(each.after)}" for each in found[:_MOST_TOLD]]
    return "; ".join(told) + (f" and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else "")


def _brief(value: Any) -> str:
    text = visible(repr(value) if value is ABSENT else plain_json(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def says_otherwise(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if a model would read text that it did not read before."""
    # Of the arguments' schema only additions and rewritten texts count, names and values of `enum` included:
    # a removal adds no words to a model's context.
    if any(plain_json(old.get(key)) != plain_json(new.get(key)) for key in _SPOKEN):
        return True
    before, after = old.get("inputSchema"), new.get("inputSchema")
    if not _said(after).items() <= _said(before).items():
        return True
    return not set(texts_in(after)) <= {*texts_in(before), *_TYPES, *_NARROWING}


def _within(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in sorted(before.keys() | after.keys()):
            step = f"{path}.{visible(key)}" if path else visible(key)
            yield from _within(step, before.get(key, ABSENT), after.get(key, ABSENT))
    elif _is_aligned(old, new):
        for place, (before, after) in enumerate(
            zip(cast("list[Any]", old), cast("list[Any]", new), strict=True)
        ):
            yield from _within(f"{path}[{place}]", before, after)
    elif old is ABSENT or new is ABSENT or plain_json(old) != plain_json(new):
        yield Difference(path, old, new)


def _is_aligned(old: Any, new: Any) -> bool:
    """True if two lists hold objects; lists of plain values are shown whole."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    before, after = cast("list[Any]", old), cast("list[Any]", new)
    return len(before) == len(after) and any(isinstance(item, dict) for item in before)


def _said(schema: Any) -> dict[str, str]:
    said = (part for part in parts(schema) if part.kind == "wording" or part.path.endswith(_PROPOSED))
    return {part.path: plain_json(part.value) for part in said if part.kind != "name"}


def _lines(value: Any) -> list[str]:
    if value is ABSENT:
        return []
    text = value if isinstance(value, str) else plain_json(value)
    return [visible(line) for line in text.split("\n")]


def _look_alike(before: list[str], after: list[str]) -> bool:
    """True if a reader could mistake two texts for each other: equal but for Unicode."""
    one, other = ("\n".join(side) for side in (before, after))
    if unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other):
        return True
    if len(one) != len(other):
        return False
    changed = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return all(not a.isascii() or not b.isascii() for a, b in changed)
