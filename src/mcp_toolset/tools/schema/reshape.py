"""Check that a property of a JSON Schema can be renamed or removed, and adapt what refers to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from mcp_toolset.errors import DefinitionError

Schema = Mapping[str, Any]

_DATA: Final = frozenset({"enum", "const", "default", "examples", "example"})
"""Keywords whose values are data, not schemas."""

_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values are schemas by name."""

_TYING: Final = (
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "dependentSchemas", "dependentRequired", "dependencies",
)  # fmt: skip
"""Keywords of the root that can link parameters to each other; harmless if they do not name them."""

_WHOLE: Final = (
    "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "$ref", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords of the root that concern all parameters at once."""


def refuse_ties(where: str, schema: Schema, names: set[str]) -> None:
    """Check that parameters of these names can be changed without changing any other.

    Raises:
        DefinitionError: a keyword of the root links them to others; the message names it.
    """
    for keyword in (*_WHOLE, *_TYING):
        if keyword in schema and (keyword in _WHOLE or _names_any(schema[keyword], names)):
            raise DefinitionError(
                f"{where}: {keyword!r} at the root of its schema ties parameters together, "
                f"so {', '.join(sorted(names))} can only be described"
            )


def _names_any(value: object, names: set[str]) -> bool:
    """Whether a text in the value, key or item, is one of the names, or it concerns all parameters."""
    if isinstance(value, str):
        return value in names
    if isinstance(value, Mapping):
        known = cast("Mapping[str, object]", value)
        return any(key in names or key in _WHOLE for key in known) or any(
            _names_any(item, names) for item in known.values()
        )
    return isinstance(value, list) and any(_names_any(item, names) for item in cast("list[object]", value))


def detached(schema: Schema) -> Schema:
    """The schema with its references into the root pointing to a copy of the root.

    A recursive schema refers to its root with `#`, and some generators refer from one parameter to another.
    Both mean the tool's schema, which differs from the one that the model will see.
    """
    if not any(map(_is_rooted, _references(schema))):
        return schema
    known: Mapping[str, Any] = schema.get("$defs") or {}
    key = "arguments"
    while key in known:
        key += "_"
    own = {
        name: value
        for name, value in schema.items()
        if name not in ("$id", "$schema", "$defs", "definitions")
    }
    turned = _turned(schema, f"#/$defs/{key}")
    return {**turned, "$defs": {**turned.get("$defs", {}), key: _turned(own, f"#/$defs/{key}")}}


def _is_rooted(reference: str) -> bool:
    return reference == "#" or (
        reference.startswith("#/") and not reference.startswith(("#/$defs/", "#/definitions/"))
    )


def _turned(schema: Any, home: str) -> Any:
    if isinstance(schema, list):
        return [_turned(item, home) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    done: dict[str, Any] = {}
    for keyword, value in cast("Schema", schema).items():
        if keyword == "$ref" and isinstance(value, str) and _is_rooted(value):
            done[keyword] = home + value[1:]
        elif keyword in _MAPS and isinstance(value, Mapping):
            done[keyword] = {name: _turned(one, home) for name, one in cast("Schema", value).items()}
        else:
            done[keyword] = value if keyword in _DATA else _turned(value, home)
    return done


def _references(schema: object) -> Iterator[str]:
    """Every local reference in a schema."""
    if isinstance(schema, list):
        for item in cast("list[object]", schema):
            yield from _references(item)
    if not isinstance(schema, Mapping):
        return
    for keyword, value in cast("Schema", schema).items():
        if keyword in ("$dynamicRef", "$recursiveRef"):
            raise DefinitionError(
                f"a schema with {keyword!r} cannot have its parameters changed, only described"
            )
        if keyword == "$ref" and isinstance(value, str):
            yield value
        elif keyword in _MAPS and isinstance(value, Mapping):
            yield from (found for one in cast("Schema", value).values() for found in _references(one))
        elif keyword not in _DATA:
            yield from _references(value)


def examples_mapped(schema: dict[str, Any], public: Mapping[str, str], *, hidden: set[str]) -> dict[str, Any]:
    """The schema with its examples of whole arguments under the names that the model sees."""

    def mapped(example: Any) -> Any:
        if not isinstance(example, Mapping):
            return example
        given = cast("Schema", example)
        return {public.get(name, name): value for name, value in given.items() if name not in hidden}

    changed: dict[str, Any] = {}
    if isinstance(schema.get("examples"), list):
        changed["examples"] = [mapped(example) for example in schema["examples"]]
    if "default" in schema:
        changed["default"] = mapped(schema["default"])
    return {**schema, **changed}
