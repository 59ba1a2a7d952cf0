"""`canonical`: the pinned form of a definition, and the parts of its schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.definition import ToolDefinition

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


def is_annotation(key: str) -> bool:
    """True for a keyword that is not enforced; `x-mcp-header` is none: it puts values into headers."""
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
    elif is_annotation(key) and key not in VALUES:
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
