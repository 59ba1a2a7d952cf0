"""The canonical form of a definition, equal for equivalent definitions, and its digest.

The order of keys says nothing in JSON, nor does the order of `required`, of the types in `type` or of the
values of `enum` (JSON Schema 2020-12, 6.1 and 6.5.3); servers that keep them in hash tables list them in
another order each time. `1` and `1.0` are the same number (4.2.2), `true` is not a number. Everything else
counts: texts that only look alike, or are equal under a normal form of Unicode, are different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset.catalog.pins.schema_parts import LISTS_OF_SCHEMAS, SCHEMAS, TABLES_OF_SCHEMAS
from mcp_toolset.tools.core.definition import ToolDefinition

__all__ = ["canonical", "digest_of", "plain_json"]

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
