"""The root of a tool's parameters as one plain object schema, which every provider requires.

OpenAI and Anthropic refuse `anyOf`, `oneOf`, `allOf`, `enum`, `const` and `not` at the root. These are
merged into one object that accepts every combination of arguments the schema lists. What is lost is put into
words in the description, and the tool's own schema still checks the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from mcp_toolset.extensions.model_loop.forms.schema import DEFINITIONS, Schema, resolved

_CHOICES: Final = {"oneOf": "exactly one", "anyOf": "at least one"}
_VALUES: Final = {"enum": "The arguments as a whole are one of", "const": "The arguments are always"}
_REFUSED: Final = frozenset({"$ref", "allOf", "not", *_CHOICES, *_VALUES})
_PER_PART: Final = frozenset({"properties", "required", "additionalProperties", *DEFINITIONS})


def rooted(schema: Schema) -> Schema:
    """The schema as an object schema without a union, reference or fixed value at its root."""
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
        """One part of the root as an object schema; what cannot be expressed is added to `notes`."""
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
                notes.append(f"Give the arguments of {count} of these: {_told(branches)}.")
        notes.extend(f"{words} {_json(keywords[key])}." for key, words in _VALUES.items() if key in keywords)
        if "not" in keywords:
            notes.append(f"The arguments must not fit {_json(keywords['not'])}.")
        return base

    def _parts(self, keywords: dict[str, Any]) -> Iterable[Any]:
        if "$ref" in keywords:
            yield resolved(self._root, keywords["$ref"])
        yield from keywords.get("allOf", ())


def both(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """One schema for two that both apply; where they differ, `base` wins."""
    properties = dict(base.get("properties", {}))
    for name, inner in part.get("properties", {}).items():
        other = properties.get(name)
        same = other is None or other == inner
        properties[name] = inner if same else {"allOf": [other, inner]}
    rest = {key: value for key, value in part.items() if key not in _PER_PART}
    required = list(dict.fromkeys([*base.get("required", ()), *part.get("required", ())]))
    return _object({**rest, **base}, properties, required, closed=_closed(base) or _closed(part))


def _either(base: dict[str, Any], branches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A schema and a choice of others; what the schema says about a property wins."""
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


def _told(branches: Iterable[dict[str, Any]]) -> str:
    return "; ".join(f"({_named(branch)})" for branch in branches)


def _named(branch: dict[str, Any]) -> str:
    properties = branch.get("properties", {})
    names = branch.get("required") or list(properties)
    return ", ".join(_with_value(name, properties.get(name)) for name in names) or "none"


def _with_value(name: str, schema: Any) -> str:
    fixed = isinstance(schema, dict) and "const" in schema
    return f"{name} = {_json(cast('dict[str, Any]', schema)['const'])}" if fixed else name


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
