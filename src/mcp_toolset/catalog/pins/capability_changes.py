"""What a changed definition can do that the old one could not; such a tool is quarantined.

The comparison errs on one side only. Without a reason, every call that the new schema accepts was accepted by
the old one, no new parameter is described, and no hint was withdrawn. A JSON Schema rule that this module
does not know is a reason as soon as it differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from mcp_toolset.catalog.pins.canonical import TABLES_OF_SCHEMAS, only_says, plain_json

__all__ = ["gained"]

_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_NARROW_BY_BEING_THERE: Final = ("pattern", "format", "multipleOf", "uniqueItems", "dependentRequired")
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_COMPARED: Final = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "properties",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "items",
        "allOf",
        "anyOf",
        "$defs",
        "definitions",
        *_LEAST,
        *_MOST,
        *_NARROW_BY_BEING_THERE,
    }
)
_TURNS_AROUND: Final = re.compile(
    r'"(?:not|if|oneOf|contains|dependentSchemas|dependencies|unevaluated\w+|\$dynamicRef|\$recursiveRef)":'
)
"""Keywords under which a narrower subschema can make the whole wider."""

_REFERENCE: Final = re.compile(r'"\$ref":"([^"]*)"')
_PLAIN_REFERENCE: Final = re.compile(r"#(?:/(?:\$defs|definitions)/[^/]+)?")

_HINTS: Final = (
    ("readOnlyHint", True, "it is no longer annotated as read-only"),
    ("destructiveHint", False, "it is no longer annotated as harmless (destructiveHint: false)"),
    ("idempotentHint", True, "it is no longer annotated as safe to repeat (idempotentHint)"),
    ("openWorldHint", False, "it is no longer annotated as closed to the outside (openWorldHint: false)"),
)
"""The hints that promise something, with the promising value; an absent hint promises nothing (schema.ts)."""


def gained(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the new canonical definition can, or may be able to, do more than the old; empty if it cannot."""
    reasons = [*_hints(old.get("annotations"), new.get("annotations"))]
    before, after = old.get("inputSchema"), new.get("inputSchema")
    if plain_json(_enforced(before)) != plain_json(_enforced(after)):
        reasons.extend(_found(before, after))
    return tuple(dict.fromkeys(reasons))


def _hints(old: Any, new: Any) -> Iterator[str]:
    before, after = _table(old), _table(new)
    for hint, promise, reason in _HINTS:
        if before.get(hint) is promise and after.get(hint) is not promise:
            yield reason


def _found(old: Any, new: Any) -> list[str]:
    if _is_beyond_comparing(old) or _is_beyond_comparing(new):
        # The parts are compared as well: a new parameter is easier to judge than a keyword.
        return [
            *_wider(old, new, ""),
            "the arguments that it takes have changed in a way that is hard to compare",
        ]
    return [*_wider(old, new, "")]


def _is_beyond_comparing(schema: Any) -> bool:
    """Whether a part may take effect elsewhere, so that parts cannot be compared one by one."""
    text = plain_json(schema)
    references = _REFERENCE.findall(text)
    if any(not _PLAIN_REFERENCE.fullmatch(reference) for reference in references):
        return True
    return bool(_TURNS_AROUND.search(text)) and (bool(references) or "unevaluated" in text)


def _wider(old: Any, new: Any, at: str) -> Iterator[str]:
    """The reasons why `new` may accept a value that `old` does not."""
    if new is False:
        return
    if old is False:
        yield f"{_shown(at)} was never allowed and is now"
        return
    before, after = _table(old), _table(new)
    if not before and not after:
        return
    yield from _types(before, after, at)
    yield from _choices(before, after, at)
    yield from _bounds(before, after, at)
    yield from _named(before, after, at)
    yield from _parts(before, after, at)
    yield from _unread(before, after, at)


def _types(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    more = _types_of(new) - _types_of(old)
    if more:
        yield f"{_shown(at)} takes more types: {', '.join(sorted(more))}"


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    said: Any = schema.get("type")
    if said is None:
        return _TYPES
    several = cast("list[Any]", said) if isinstance(said, list) else [said]
    names = frozenset(str(name) for name in several)
    return names | {"integer"} if "number" in names else names


def _choices(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if before is not None and (after is None or not after <= before):
        more = "any value" if after is None else "more values: " + _some(after - before)
        yield f"{_shown(at)} takes {more}"


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    listed: Any = schema.get("enum")
    enum = None if not isinstance(listed, list) else frozenset(map(plain_json, cast("list[Any]", listed)))
    const = frozenset([plain_json(schema["const"])]) if "const" in schema else None
    return const if enum is None else enum if const is None else enum & const


def _bounds(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for keys, sign in ((_LEAST, -1), (_MOST, 1)):
        for key in keys:
            if key in old and not _is_within(old[key], new.get(key), sign):
                yield f"{_shown(at)}: {key} was {old[key]!r} and is {_or_gone(new, key)}"
    for key in _NARROW_BY_BEING_THERE:
        if key in old and _differs(key, old, new):
            yield f"{_shown(at)}: {key} was given up or has changed"


def _is_within(old: Any, new: Any, sign: int) -> bool:
    if not _is_number(old) or not _is_number(new):
        return old is new
    return new * sign <= old * sign


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _named(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    """Changes of parameters by name: new ones, removed ones, those that are no longer required."""
    before, after = _table(old.get("properties")), _table(new.get("properties"))
    rest = new.get("additionalProperties", True)
    for name in sorted(after.keys() - before.keys()):
        yield f"{_shown(at)} takes a new parameter `{name}`" if at else f"it takes a new parameter `{name}`"
    for name in sorted(before.keys() & after.keys()):
        yield from _wider(before[name], after[name], _under(at, name))
    for name in sorted(before.keys() - after.keys()):
        if new.get("patternProperties") or [*_wider(before[name], rest, _under(at, name))]:
            yield f"`{_under(at, name)}` is no longer described, so it takes anything"
    for name in sorted(_names(old.get("required")) - _names(new.get("required"))):
        yield f"`{_under(at, name)}` is no longer required"


def _parts(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for key, step in (("additionalProperties", "*"), ("propertyNames", "(names)")):
        yield from _wider(old.get(key, True), new.get(key, True), _under(at, step))
    yield from _items(old, new, at)
    if _differs("patternProperties", old, new):
        yield f"{_shown(at)}: patternProperties has changed"
    for key in ("$defs", "definitions"):
        before, after = _table(old.get(key)), _table(new.get(key))
        for name in sorted(before.keys() & after.keys()):
            yield from _wider(before[name], after[name], _under(at, name))
    yield from _all_of(old, new, at)
    yield from _any_of(old, new, at)


def _items(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = old.get("items", True), new.get("items", True)
    if isinstance(before, list) or isinstance(after, list):
        if _differs("items", old, new):
            yield f"{_shown(at)}: items has changed"
    else:
        yield from _wider(before, after, f"{at}[]")


def _all_of(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = _list(old.get("allOf")), _list(new.get("allOf"))
    for part, now in zip(before, after, strict=False):
        yield from _wider(part, now, at)
    if len(after) < len(before):
        yield f"{_shown(at)}: a condition of allOf was given up"
    for added in after[len(before) :]:
        yield from (reason for reason in _wider({}, added, at) if "new parameter" in reason)


def _any_of(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    before, after = _list(old.get("anyOf")), _list(new.get("anyOf"))
    if before and not after:
        yield f"{_shown(at)}: the alternatives of anyOf were given up"
    known = {plain_json(_enforced(part)) for part in before}
    for place, now in enumerate(after):
        if plain_json(_enforced(now)) in known:
            continue
        if before and place >= len(before):
            yield f"{_shown(at)} takes another alternative"
        else:
            yield from _wider(before[place] if before else {}, now, at)


def _unread(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        if key in _COMPARED or only_says(key):
            continue
        if _differs(key, old, new):
            yield f"{_shown(at)}: {key} has changed"


def _differs(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if key not in old or key not in new:
        return (key in old) != (key in new)
    return plain_json(_kept(key, old[key])) != plain_json(_kept(key, new[key]))


def _enforced(schema: Any) -> Any:
    """A schema without descriptive keywords; a parameter that is called `title` stays."""
    if isinstance(schema, list):
        return [_enforced(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    return {key: _kept(key, value) for key, value in table.items() if not only_says(key)}


def _kept(key: str, value: Any) -> Any:
    if key in ("enum", "const", "required", "dependentRequired"):
        return value
    if key in TABLES_OF_SCHEMAS:
        return {name: _enforced(part) for name, part in _table(value).items()}
    return _enforced(value)


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in _list(value) if isinstance(name, str))


def _under(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(at: str) -> str:
    return f"`{at}`" if at else "the input"


def _or_gone(schema: Mapping[str, Any], key: str) -> str:
    return repr(schema[key]) if key in schema else "gone"


def _some(values: frozenset[str]) -> str:
    shown = sorted(values)[:5]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")
