"""JSON Schemas for exports: walked and copied; and strict mode, the part of it that a provider can enforce.

What the provider cannot enforce is removed and put into words in the description, so a strict schema accepts
every set of arguments that the tool lists. A schema whose meaning would change is not made strict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, Final, cast
from urllib.parse import unquote

from mcp_toolset._records import dataclass
from mcp_toolset.tools.definition import qualified
from mcp_toolset.tools.export import WayBack
from mcp_toolset.tools.validation import SchemaCheck

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
    value: Any = root
    for step in unquote(reference.removeprefix("#")).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            value = cast("list[Any]", value)[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


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
    names: list[str] = []

    def look(inner: Any) -> None:
        if isinstance(inner, Mapping):
            keywords = cast("Schema", inner)
            if isinstance(keywords.get("$ref"), str):
                names.append(keywords["$ref"])
            mapped(_without(keywords, *DEFINITIONS), look)

    look(schema)
    return iter(names)


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
    flat = _flat(schema, schema, notes)
    text = " ".join([*([flat["description"]] if flat.get("description") else []), *notes])
    return {**flat, "type": "object", **({"description": text} if text else {})}


def _flat(root: Schema, part: Any, notes: list[str]) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {}
    keywords = cast("dict[str, Any]", part)
    base = {key: value for key, value in keywords.items() if key not in _REFUSED}
    referred = [resolved(root, keywords["$ref"])] if "$ref" in keywords else []
    for every in (*referred, *keywords.get("allOf", ())):
        base = both(base, _flat(root, every, notes))
    for key, how_many in _CHOICES.items():
        if key in keywords:
            branches = [_flat(root, branch, []) for branch in keywords[key]]
            base = _either(base, branches)
            told = "; ".join(f"({_named(branch)})" for branch in branches)
            notes.append(f"Give the arguments of {how_many} of these: {told}.")
    notes.extend(f"{words} {_json(keywords[key])}." for key, words in _VALUES.items() if key in keywords)
    if "not" in keywords:
        notes.append(f"The arguments must not fit {_json(keywords['not'])}.")
    return base


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


_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_]")


def provider_names(
    names: Iterable[str], legal: re.Pattern[str], reserved: Collection[str] = ()
) -> dict[str, str]:
    """Different legal names, none `reserved`; an altered one gets a digest, the same each time."""
    listed = list(names)
    kept = {name: name for name in listed if legal.fullmatch(name) and name not in reserved}
    taken = {*kept, *reserved}
    for name in listed:
        if name not in kept:
            kept[name] = _altered(name, taken)
            taken.add(kept[name])
    return {name: kept[name] for name in listed}


def _altered(name: str, taken: Collection[str]) -> str:
    stem = _OUTSIDE.sub("_", name)
    if not stem or stem[0].isdigit():
        stem = f"_{stem}"
    identities = (name if attempt == 0 else f"{name}\0{attempt}" for attempt in count())
    return next(made for identity in identities if (made := qualified(stem, identity)) not in taken)


_ANNOTATIONS: Final = frozenset({"default", "description", "examples", "title"})
_NAMES_PROPERTIES: Final = frozenset(
    {
        *("dependencies", "dependentRequired", "dependentSchemas", "else", "if", "patternProperties"),
        *("propertyNames", "then"),
    }
)


def with_legal_properties(schema: Schema, legal: re.Pattern[str]) -> tuple[Schema, WayBack | None]:
    """The schema with legal argument names, and a decoder if one changed; keywords that name others go."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = provider_names(properties, legal)
    if all(name == own for own, name in names.items()):
        return schema, None
    copy = {key: value for key, value in schema.items() if key not in _NAMES_PROPERTIES}
    copy["properties"] = {names[own]: _told(inner, own, names[own]) for own, inner in properties.items()}
    if "required" in schema:
        copy["required"] = [names.get(own, own) for own in schema["required"]]
    return copy, renamed_back({name: own for own, name in names.items()})


def renamed_back(names: Mapping[str, str]) -> WayBack:
    return lambda given: {names.get(name, name): value for name, value in given.items()}


def _told(schema: Any, own: str, name: str) -> Any:
    if own == name or not isinstance(schema, Mapping):
        return schema
    keywords = cast("dict[str, Any]", schema)
    text = f"The argument {own!r}."
    return {**keywords, "description": f"{text} {keywords.get('description', '')}".rstrip()}


def check_of(schema: Schema, root: Schema) -> SchemaCheck:
    dialect = {"$schema": root["$schema"]} if "$schema" in root else {}
    return SchemaCheck({**dialect, **definitions_of(root), **schema}, tool="exported", part="inputSchema")


def accepts_null(schema: Any, root: Schema) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    keywords = cast("Schema", schema)
    kinds = kinds_of(keywords)
    if kinds and "null" not in kinds:
        return False
    if keywords.keys() - _ANNOTATIONS == {"anyOf"}:
        return any(accepts_null(branch, root) for branch in keywords["anyOf"])
    return check_of(keywords, root).is_valid(None)


def null_is_absence(schema: Any, root: Schema) -> bool:
    """True if `null` for an optional property leaves it out: it is refused there, or is the default."""
    default_is_null = isinstance(schema, Mapping) and cast("Schema", schema).get("default", ...) is None
    return default_is_null or not accepts_null(schema, root)


class NullsLeftOut:
    """The decoder of strict arguments, all of which are required: removes each `null` that means absence."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._checks: dict[int, SchemaCheck] = {}
        self._absences: dict[int, frozenset[str]] = {}

    def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._decoded(self._root, given)

    def _decoded(self, schema: Any, value: Any) -> Any:
        if not isinstance(schema, Mapping) or not isinstance(value, dict | list):
            return value
        keywords = cast("Schema", schema)
        for inner in self._applied(keywords, value):
            value = self._decoded(inner, value)
        if isinstance(value, list):
            return [self._decoded(keywords.get("items"), item) for item in cast("list[Any]", value)]
        return self._object(keywords, cast("dict[str, Any]", value))

    def _object(self, schema: Schema, value: dict[str, Any]) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        if not properties:
            return value
        absences = self._absent_when_null(schema, properties)
        return {
            name: self._decoded(properties.get(name), inner)
            for name, inner in value.items()
            if inner is not None or name not in absences
        }

    def _absent_when_null(self, schema: Schema, properties: Mapping[str, Any]) -> frozenset[str]:
        known = self._absences.get(id(schema))
        if known is None:
            optional = properties.keys() - set(schema.get("required", ()))
            known = frozenset(name for name in optional if null_is_absence(properties[name], self._root))
            self._absences[id(schema)] = known
        return known

    def _applied(self, schema: Schema, value: Any) -> Iterator[Any]:
        if isinstance(schema.get("$ref"), str):
            yield resolved(self._root, schema["$ref"])
        yield from schema.get("allOf", ())
        for key in ("anyOf", "oneOf"):
            for branch in schema.get(key, ()):
                if self._fits(branch, self._decoded(branch, value)):
                    yield branch
                    break

    def _fits(self, branch: Any, value: Any) -> bool:
        if not isinstance(branch, Mapping):
            return branch is True
        check = self._checks.get(id(cast("Schema", branch)))
        if check is None:
            check = check_of(cast("Schema", branch), self._root)
            self._checks[id(cast("Schema", branch))] = check
        return check.is_valid(value)


_HANDLED: Final = frozenset(
    {
        *DEFINITIONS,
        "additionalProperties",
        "allOf",
        "anyOf",
        "items",
        "oneOf",
        "properties",
        "required",
        "unevaluatedProperties",
    }
)
_INEXPRESSIBLE: Final = frozenset({"$dynamicRef", "allOf", "patternProperties", "prefixItems"})
_NOTES: Final = frozenset({"default", "deprecated", "description", "examples", "title"})
_KINDS: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class StrictDialect:
    """The part of JSON Schema that one provider can enforce."""

    kept: frozenset[str]  # Keywords that may stay, besides the structure of objects, arrays and unions.
    formats: frozenset[str]  # Values of `format` that may stay.
    all_required: bool  # True if every property must be required, the optional ones being nullable.
    recursion: bool  # True if a definition may refer back to itself.
    # True if a keyword's value may stay, if that depends on the value.
    keeps: Callable[[str, Any], bool] = lambda key, value: True
    # True if a finished schema is within the provider's size limits.
    fits: Callable[[Schema], bool] = lambda schema: True


class _UnfitError(Exception):
    """The schema cannot be made strict without changing its meaning."""


def strict_schema(schema: Schema, dialect: StrictDialect) -> dict[str, Any] | None:
    if not dialect.recursion and recursive_references(schema):
        return None
    try:
        made = _Strict(schema, dialect).root()
    except _UnfitError:
        return None
    return made if dialect.fits(made) else None


class _Strict:
    def __init__(self, root: Schema, dialect: StrictDialect) -> None:
        self._root = root
        self._dialect = dialect

    def root(self) -> dict[str, Any]:
        closed = {"additionalProperties": False, **self._root}
        made = self._schema(closed)
        for key in DEFINITIONS:
            if self._root.get(key):
                made[key] = {name: self._schema(inner) for name, inner in self._root[key].items()}
        return made

    def _schema(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping) or not given:
            raise _UnfitError
        schema = _simplified(cast("Schema", given))
        if "$ref" in schema:
            return self._reference(schema)
        if _INEXPRESSIBLE & schema.keys():
            raise _UnfitError
        made = {key: deepcopy(value) for key, value in schema.items() if self._keeps(key, value)}
        _name_the_type(made, schema)
        self._structure(schema, made)
        return with_note(made, lost(schema, made.keys() | _HANDLED))

    def _keeps(self, key: str, value: Any) -> bool:
        dialect = self._dialect
        known = key in dialect.kept and key not in _HANDLED
        return known and (key != "format" or value in dialect.formats) and dialect.keeps(key, value)

    def _reference(self, schema: Schema) -> dict[str, Any]:
        """A reference has no siblings: keywords next to it are put around it."""
        if not isinstance(resolved(self._root, schema["$ref"]), Mapping):
            raise _UnfitError
        reference = {"$ref": schema["$ref"]}
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if beside.keys() - _NOTES:
            raise _UnfitError
        if not beside:
            return reference
        kept = {key: value for key, value in beside.items() if self._keeps(key, value)}
        return with_note({**deepcopy(kept), "anyOf": [reference]}, lost(beside, kept))

    def _structure(self, schema: Schema, made: dict[str, Any]) -> None:
        kinds = kinds_of(made)
        if "anyOf" in schema:
            if {"properties", "items"} & schema.keys():
                raise _UnfitError
            made["anyOf"] = [self._schema(branch) for branch in schema["anyOf"]]
        elif not kinds or ("properties" in schema and "object" not in kinds):
            raise _UnfitError
        if "array" in kinds:
            made["items"] = self._schema(schema.get("items"))
        if "object" in kinds:
            self._object(schema, made)

    def _object(self, schema: Schema, made: dict[str, Any]) -> None:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", bool(not properties)))
        required: list[str] = schema.get("required", [])
        if rest is not False or not properties.keys() >= set(required):
            raise _UnfitError
        made["properties"] = {
            name: self._schema(inner) if name in required else self._optional(inner)
            for name, inner in properties.items()
        }
        made["required"] = list(properties) if self._dialect.all_required else list(required)
        made["additionalProperties"] = False

    def _optional(self, schema: Any) -> dict[str, Any]:
        made = self._schema(schema)
        if not self._dialect.all_required:
            return made
        if accepts_null(schema, self._root):
            if not null_is_absence(schema, self._root) and "default" not in schema:
                raise _UnfitError
            return made
        return with_note(_nullable(made), "Null leaves it out.")


def _simplified(schema: Schema) -> Schema:
    every = schema.get("allOf")
    if isinstance(every, list) and len(cast("list[Any]", every)) == 1 and isinstance(every[0], dict):
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        inner = cast("Schema", every[0])
        if not (rest.keys() & inner.keys()) - _NOTES:
            schema = {**inner, **rest}
    if "oneOf" in schema and "anyOf" not in schema:
        schema = {("anyOf" if key == "oneOf" else key): value for key, value in schema.items()}
    if "oneOf" in schema:
        raise _UnfitError
    return schema


def _name_the_type(made: dict[str, Any], schema: Schema) -> None:
    if "const" not in schema and "enum" not in schema:
        return
    values: list[object] = [schema["const"]] if "const" in schema else schema["enum"]
    kinds = list(dict.fromkeys(_KINDS.get(type(value), "") for value in values))
    if "" in kinds or not kinds:
        raise _UnfitError
    if "type" not in made:
        made["type"] = kinds[0] if len(kinds) == 1 else kinds


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    outside = {key: schema[key] for key in ("title", "description") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    if inside.keys() == {"anyOf"}:
        return {**outside, "anyOf": [*inside["anyOf"], {"type": "null"}]}
    if inside.keys() == {"type"}:
        return {**outside, "type": [*kinds_of(inside), "null"]}
    return {**outside, "anyOf": [inside, {"type": "null"}]}


def sizes_of(schema: Any) -> tuple[int, int, int]:
    """The numbers of properties, levels and enum values of a schema, definitions included."""
    if not isinstance(schema, Mapping):
        return 0, 0, 0
    keywords = cast("Schema", schema)
    sizes: list[tuple[int, int, int]] = []
    mapped(keywords, lambda inner: sizes.append(sizes_of(inner)))
    own: int = len(keywords.get("properties") or ())
    level = 1 if {"object", "array"} & set(kinds_of(keywords)) else 0
    return (
        own + sum(size[0] for size in sizes),
        level + max((size[1] for size in sizes), default=0),
        len(keywords.get("enum") or ()) + sum(size[2] for size in sizes),
    )
