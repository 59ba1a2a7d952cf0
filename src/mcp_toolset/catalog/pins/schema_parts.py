"""What a JSON Schema is made of, told apart: names, wording, patterns and values, each with its place.

A parameter may be called `title` or `enum`; whether a key is a keyword or a name depends on where it stands.
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
"""Keywords whose value is a list of schemas; `items` was one until 2019-09."""

TABLES_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value has a schema under each key."""

VALUES: Final = frozenset({"default", "example", "examples"})
"""Keywords that are not enforced, with values that a model may send as they stand."""

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
    """One thing that a schema says.

    Attributes:
        kind: `name` of a parameter, definition or unknown keyword; `wording`, which is only read;
            `pattern`, also as a key; or `value`.
        path: Where it stands, from the schema's root.
        value: What stands there.
    """

    kind: Literal["name", "wording", "pattern", "value"]
    path: str
    value: Any


def only_says(key: str) -> bool:
    """Whether a keyword is read and not enforced; `x-mcp-header` decides what leaves in a header."""
    return key in _WORDING or key in VALUES or (key.startswith("x-") and key != "x-mcp-header")


def parts(schema: Any, path: str = "") -> Iterator[Part]:
    """Everything that a schema says, in its own order; what is no schema says nothing."""
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
