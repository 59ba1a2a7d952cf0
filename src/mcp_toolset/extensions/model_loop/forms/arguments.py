"""Names that a provider accepts, and arguments decoded from an exported schema to the tool's own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final, cast

from mcp_toolset.extensions.model_loop.forms.schema import Schema, definitions_of, kinds_of, resolved
from mcp_toolset.tools.core.names import qualified
from mcp_toolset.tools.export.table import WayBack
from mcp_toolset.tools.schema.validation import SchemaCheck

_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_]")


def provider_names(
    names: Iterable[str], legal: re.Pattern[str], reserved: Collection[str] = ()
) -> dict[str, str]:
    """A name that matches `legal` for each of `names`, all different, none of them `reserved`.

    A name that matches is kept. Another is altered and gets a digest of the original, so that the same name
    is altered in the same way in every request.
    """
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
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "patternProperties",
        "propertyNames",
        "then",
    }
)


def with_legal_properties(schema: Schema, legal: re.Pattern[str]) -> tuple[Schema, WayBack | None]:
    """The schema with argument names that match `legal`, and a decoder if any was renamed.

    Keywords of the root that name arguments are then left out: the tool's own schema still checks
    them.
    """
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
    """Rename arguments back; `names` maps the exported name to the tool's own."""
    return lambda given: {names.get(name, name): value for name, value in given.items()}


def _told(schema: Any, own: str, name: str) -> Any:
    if own == name or not isinstance(schema, Mapping):
        return schema
    keywords = cast("dict[str, Any]", schema)
    text = f"The argument {own!r}."
    return {**keywords, "description": f"{text} {keywords.get('description', '')}".rstrip()}


def check_of(schema: Schema, root: Schema) -> SchemaCheck:
    """A compiled part of a schema, with the definitions of its root."""
    dialect = {"$schema": root["$schema"]} if "$schema" in root else {}
    return SchemaCheck({**dialect, **definitions_of(root), **schema}, tool="exported", part="inputSchema")


def accepts_null(schema: Any, root: Schema) -> bool:
    """Whether `null` is a value of the schema."""
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
    """Whether `null` for an optional property means that it is left out.

    It does if the property does not accept `null`, or if `null` is its default.
    """
    default_is_null = isinstance(schema, Mapping) and cast("Schema", schema).get("default", ...) is None
    return default_is_null or not accepts_null(schema, root)


class NullsLeftOut:
    """The decoder of strict arguments: a `null` that stands for an absent property is removed.

    In strict mode every property is required, and the optional ones may be `null`.
    """

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._checks: dict[int, SchemaCheck] = {}
        self._absences: dict[int, frozenset[str]] = {}

    def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments without the properties that the model left out."""
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
        found = self._absences.get(id(schema))
        if found is None:
            optional = properties.keys() - set(schema.get("required", ()))
            found = frozenset(name for name in optional if null_is_absence(properties[name], self._root))
            self._absences[id(schema)] = found
        return found

    def _applied(self, schema: Schema, value: Any) -> Iterator[Any]:
        """The schemas that apply to `value` besides this one."""
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
