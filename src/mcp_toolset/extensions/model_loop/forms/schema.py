"""Walk and copy JSON Schemas; the exports of all providers use it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, cast
from urllib.parse import unquote

Schema = Mapping[str, Any]  # A JSON Schema that is an object; not changed here.

DEFINITIONS: Final = ("$defs", "definitions")  # The keywords under which a schema has its definitions.

_MAPS_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SCHEMAS: Final = frozenset(
    {
        *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    }
)
_SILENT: Final = frozenset(
    {*DEFINITIONS, "$schema", "$id", "$anchor", "$comment", "title", "deprecated", "readOnly", "writeOnly"}
)
_DEFINED: Final = re.compile(r"#/(?:\$defs|definitions)/[^/]+")


def mapped(schema: Schema, shape: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy with `shape` applied to each schema directly inside, not to data such as defaults."""
    return {key: _mapped_keyword(key, value, shape) for key, value in schema.items()}


def _mapped_keyword(key: str, value: Any, shape: Callable[[Any], Any]) -> Any:
    if key in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
        return {name: shape(inner) for name, inner in cast("Schema", value).items()}
    if key in _LISTS_OF_SCHEMAS and isinstance(value, list):
        return [shape(inner) for inner in cast("list[Any]", value)]
    return shape(value) if key in _SCHEMAS else deepcopy(value)


def portable(schema: Any) -> Any:
    """A copy without `$schema`, whose object schemas all have `properties`."""
    if not isinstance(schema, Mapping):
        return deepcopy(schema)
    copy = mapped(cast("Schema", schema), portable)
    copy.pop("$schema", None)
    if "object" in kinds_of(copy):
        copy.setdefault("properties", {})
    return copy


def kinds_of(schema: Schema) -> list[str]:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return cast("list[str]", kinds)
    return [kinds] if isinstance(kinds, str) else []


def resolved(root: Schema, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for step in unquote(reference.removeprefix("#")).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            found = cast("list[Any]", found)[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return found


def with_definitions(schema: Schema) -> Schema:
    """The schema with each local reference to a definition of its root, as reshaping moves parts."""
    return _Mover(schema).moved()


class _Mover:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._references: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}

    def moved(self) -> Schema:
        copy = self._shape(self._root)
        if not self._references:
            return self._root
        return {**copy, "$defs": {**copy.get("$defs", {}), **self._definitions}}

    def _shape(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        copy = mapped(cast("Schema", schema), self._shape)
        reference = copy.get("$ref")
        if isinstance(reference, str) and not _DEFINED.fullmatch(reference):
            copy["$ref"] = self._reference(reference)
        return copy

    def _reference(self, reference: str) -> str:
        if reference in self._references:
            return self._references[reference]
        target = resolved(self._root, reference)
        if target is None:
            return reference
        name = self._free_name()
        self._references[reference] = f"#/$defs/{name}"
        self._definitions[name] = None
        self._definitions[name] = self._shape(_without(target, "$schema", *DEFINITIONS))
        return self._references[reference]

    def _free_name(self) -> str:
        taken = {*self._root.get("$defs", {}), *self._definitions}
        number = len(self._definitions)
        while f"part_{number}" in taken:
            number += 1
        return f"part_{number}"


def _without(schema: Any, *keys: str) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return {key: value for key, value in cast("Schema", schema).items() if key not in keys}


def definitions_of(schema: Schema) -> dict[str, Any]:
    return {key: schema[key] for key in DEFINITIONS if key in schema}


def references(schema: Any) -> Iterator[str]:
    found: list[str] = []

    def look(inner: Any) -> None:
        if isinstance(inner, Mapping):
            keywords = cast("Schema", inner)
            if isinstance(keywords.get("$ref"), str):
                found.append(keywords["$ref"])
            mapped(_without(keywords, *DEFINITIONS), look)

    look(schema)
    return iter(found)


def recursive_references(root: Schema) -> set[str]:
    steps: dict[str, set[str]] = {}
    waiting = set(references(root))
    while waiting:
        reference = waiting.pop()
        steps[reference] = set(references(resolved(root, reference)))
        waiting |= steps[reference] - steps.keys()
    return {reference for reference in steps if _returns(reference, steps)}


def _returns(start: str, steps: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = set(steps[start])
    while waiting:
        seen |= waiting
        waiting = {after for reference in waiting for after in steps[reference]} - seen
    return start in seen


def with_note(schema: dict[str, Any], note: str) -> dict[str, Any]:
    if not note:
        return schema
    description = schema.get("description")
    return {**schema, "description": f"{description} {note}" if description else note}


def lost(schema: Schema, kept: Collection[str]) -> str:
    """Requirements that a schema's copy cannot express, as words for the description; empty if nothing."""
    told = [
        f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in schema.items()
        if key not in kept and key not in _SILENT
    ]
    return f"({'; '.join(told)})" if told else ""


_CHOICES: Final = {"oneOf": "exactly one", "anyOf": "at least one"}
_VALUES: Final = {"enum": "The arguments as a whole are one of", "const": "The arguments are always"}
_REFUSED: Final = frozenset({"$ref", "allOf", "not", *_CHOICES, *_VALUES})
_PER_PART: Final = frozenset({"properties", "required", "additionalProperties", *DEFINITIONS})


def rooted(schema: Schema) -> Schema:
    if not _REFUSED & schema.keys():
        return schema
    notes: list[str] = []
    flat = _Root(schema).flat(schema, notes)
    text = " ".join([*([flat["description"]] if flat.get("description") else []), *notes])
    return {**flat, "type": "object", **({"description": text} if text else {})}


class _Root:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def flat(self, part: Any, notes: list[str]) -> dict[str, Any]:
        if not isinstance(part, dict):
            return {}
        keywords = cast("dict[str, Any]", part)
        base = {key: value for key, value in keywords.items() if key not in _REFUSED}
        for every in self._parts(keywords):
            base = both(base, self.flat(every, notes))
        for key, count in _CHOICES.items():
            if key in keywords:
                branches = [self.flat(branch, []) for branch in keywords[key]]
                base = _either(base, branches)
                told = "; ".join(f"({_named(branch)})" for branch in branches)
                notes.append(f"Give the arguments of {count} of these: {told}.")
        notes.extend(f"{words} {_json(keywords[key])}." for key, words in _VALUES.items() if key in keywords)
        if "not" in keywords:
            notes.append(f"The arguments must not fit {_json(keywords['not'])}.")
        return base

    def _parts(self, keywords: dict[str, Any]) -> Iterable[Any]:
        if "$ref" in keywords:
            yield resolved(self._root, keywords["$ref"])
        yield from keywords.get("allOf", ())


def both(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    properties = dict(base.get("properties", {}))
    for name, inner in part.get("properties", {}).items():
        other = properties.get(name)
        same = other is None or other == inner
        properties[name] = inner if same else {"allOf": [other, inner]}
    rest = {key: value for key, value in part.items() if key not in _PER_PART}
    required = list(dict.fromkeys([*base.get("required", ()), *part.get("required", ())]))
    return _object({**rest, **base}, properties, required, closed=_closed(base) or _closed(part))


def _either(base: dict[str, Any], branches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    properties = dict(base.get("properties", {}))
    if not _closed(base):
        for name in dict.fromkeys(name for branch in branches for name in branch.get("properties", {})):
            properties.setdefault(
                name, _one_of([branch.get("properties", {}).get(name) for branch in branches])
            )
    shared = [
        name
        for name in (branches[0].get("required", ()) if branches else ())
        if all(name in branch.get("required", ()) for branch in branches)
    ]
    required = list(dict.fromkeys([*base.get("required", ()), *shared]))
    closed = _closed(base) or all(map(_closed, branches))
    return _object(base, properties, required, closed=closed)


def _object(
    base: dict[str, Any], properties: dict[str, Any], required: list[str], *, closed: bool
) -> dict[str, Any]:
    made = {**base, **({"properties": properties} if properties else {})}
    if required:
        made["required"] = required
    if closed:
        made["additionalProperties"] = False
    return made


def _closed(schema: Schema) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _one_of(schemas: Iterable[Any]) -> Any:
    different: list[Any] = []
    for schema in schemas:
        if schema is not None and schema not in different:
            different.append(schema)
    return different[0] if len(different) == 1 else {"anyOf": different}


def _named(branch: dict[str, Any]) -> str:
    properties = branch.get("properties", {})
    names = branch.get("required") or list(properties)
    return ", ".join(_with_value(name, properties.get(name)) for name in names) or "none"


def _with_value(name: str, schema: Any) -> str:
    fixed = isinstance(schema, dict) and "const" in schema
    return f"{name} = {_json(cast('dict[str, Any]', schema)['const'])}" if fixed else name


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
