"""Split a JSON Schema into its parts, each with its place: names, wording, patterns and values.

A parameter may be called `title` or `enum`; whether a key is a keyword or a name depends on its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

__all__ = ["LISTS_OF_SCHEMAS", "SCHEMAS", "TABLES_OF_SCHEMAS", "VALUES", "Part", "only_says", "parts"]

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
            yield from _member(path, key, value)


def _member(path: str, key: str, value: Any) -> Iterator[Part]:
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
