"""The canonical form of a definition, equal for equivalent definitions; its digest; the parts of its schemas.

The order of keys says nothing in JSON, nor does the order of `required`, of the types in `type` or of the
values of `enum` (JSON Schema 2020-12, 6.1 and 6.5.3); servers that keep them in hash tables list them in
another order each time. `1` and `1.0` are the same number (4.2.2), `true` is not a number. Everything else
counts: texts that only look alike, or are equal under a normal form of Unicode, are different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.core.definition import ToolDefinition

SCHEMAS: Final = frozenset(
    {
        "items",
        "additionalItems",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contains",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    }
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
    {
        "title",
        "description",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "enumNames",
        "enumDescriptions",
        "markdownDescription",
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a schema.

    Attributes:
        kind: `name` of a parameter, definition or unknown keyword; `wording`, which is only read;
            `pattern`, also as a key; or `value`.
        path: Its place, from the schema's root.
        value: Its value.
    """

    kind: Literal["name", "wording", "pattern", "value"]
    path: str
    value: Any


def only_says(key: str) -> bool:
    """Whether a keyword is only read, not enforced; `x-mcp-header` is not: it puts values into headers."""
    return key in _WORDING or key in VALUES or (key.startswith("x-") and key != "x-mcp-header")


def parts(schema: Any, path: str = "") -> Iterator[Part]:
    """Every part of a schema, in order; a value that is not a schema has none."""
    if isinstance(schema, list):
        for place, part in enumerate(cast("list[Any]", schema)):
            yield from parts(part, f"{path}[{place}]")
    elif isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, Any]", schema).items():
            yield from _member_parts(path, key, value)


def _member_parts(path: str, key: str, value: Any) -> Iterator[Part]:
    step = f"{path}.{key}"
    if key in TABLES_OF_SCHEMAS and isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield Part("pattern" if key == "patternProperties" else "name", step, name)
            yield from parts(part, f"{step}.{name}")
    elif key in SCHEMAS or key in LISTS_OF_SCHEMAS:
        yield from parts(value, step)
    elif only_says(key) and key not in VALUES:
        yield Part("wording", step, value)
    else:
        yield Part("name", path, key)
        yield Part("pattern" if key == "pattern" else "value", step, value)


__all__ = [
    "LISTS_OF_SCHEMAS",
    "Part",
    "SCHEMAS",
    "TABLES_OF_SCHEMAS",
    "VALUES",
    "canonical",
    "digest_of",
    "only_says",
    "parts",
    "plain_json",
]

_SETS: Final = frozenset({"required", "type", "enum"})
_TABLES_OF_SETS: Final = frozenset({"dependentRequired", "dependencies"})


def canonical(definition: ToolDefinition) -> dict[str, Any]:
    """The definition in wire form, the same for all equivalent definitions."""
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
