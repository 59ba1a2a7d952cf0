"""`is_simple`: whether a JSON Schema is certain to compile, so that compiling it can wait for a value.

Most tools have a simple schema: an object with typed properties. A schema with a keyword that is not known
here, such as a pattern or a reference, is compiled at once, because it may turn out to be unusable.
`surely_fits` passes ordinary values without compiling at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, cast

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
    """Whether a schema has nothing but keywords that are known here, with values that no compiler refuses."""
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
    """Whether it is a text that JSON can carry, which has no half of a surrogate pair."""
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


def _is_default(value: object) -> bool:
    return _is_scalar(value) or (isinstance(value, list | dict) and not value)


def _is_type(value: object) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _is_names(value) and bool(value) and _TYPES.issuperset(cast("list[str]", value))


def _is_names(value: object) -> bool:
    names = _items(value)
    return names is not None and all(map(_is_text, names)) and len(set(names)) == len(names)


def _is_scalars(value: object) -> bool:
    return all(map(_is_scalar, items)) if (items := _items(value)) else False


def _is_schemas(value: object) -> bool:
    return all(map(_is_schema, items)) if (items := _items(value)) else False


def _items(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def _is_properties(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    table = cast("Mapping[Any, Any]", value)
    return all(map(_is_text, table)) and all(map(_is_schema, table.values()))


def _is_dialect(value: object) -> bool:
    return isinstance(value, str) and value in _DIALECTS


_SOUND: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("title", "description", "format"), _is_text),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("items", "additionalProperties"), _is_schema),
    "$schema": _is_dialect,
    "type": _is_type,
    "properties": _is_properties,
    "required": _is_names,
    "anyOf": _is_schemas,
    "enum": _is_scalars,
    "const": _is_scalar,
    "default": _is_default,
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
    """Whether a value is certain to fit a simple schema; `False` says nothing."""
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
