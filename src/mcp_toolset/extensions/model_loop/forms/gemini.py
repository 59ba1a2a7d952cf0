"""Tools in the form of Gemini's function declarations, with `parametersJsonSchema`.

The field accepts a part of JSON Schema (reference of `FunctionDeclaration`, and "JSON Schema support" of
structured outputs). Any other keyword can make the API refuse the whole request, so it is put into words in
the description. Names have at most 64 characters, which every version accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset.extensions.model_loop.forms.form import Offer, ProviderForm
from mcp_toolset.extensions.model_loop.forms.root import both
from mcp_toolset.extensions.model_loop.forms.schema import (
    Schema,
    kinds_of,
    lost,
    mapped,
    recursive_references,
    resolved,
    with_note,
)
from mcp_toolset.tools.export.requirement import ToolRequirement

MAX_INLINED: Final = 500
"""The number of references that are replaced by their targets; beyond that a schema keeps its references."""

_KEPT: Final = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "prefixItems",
        "properties",
        "required",
        "title",
        "type",
    }
)
_FORMATS: Final = frozenset({"date-time", "date", "time", "duration"})


def parameters(schema: Schema) -> dict[str, Any]:
    """The schema in the part of JSON Schema that the field accepts, references replaced where possible."""
    shaping = _Shaping(schema)
    made = shaping.shaped(schema)
    definitions = shaping.definitions()
    return {**made, "$defs": definitions} if definitions else made


class _Shaping:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._recursive = recursive_references(root)
        self._inlined = 0
        self._kept: dict[str, str] = {}

    def definitions(self) -> dict[str, Any]:
        """The definitions that the shaped schema still refers to, by name."""
        made: dict[str, Any] = {}
        while missing := [reference for reference in self._kept if self._kept[reference] not in made]:
            for reference in missing:
                made[self._kept[reference]] = self.shaped(resolved(self._root, reference))
        return made

    def shaped(self, schema: Any) -> Any:
        """Shape one schema and everything inside it."""
        if not isinstance(schema, Mapping):
            return {} if schema is not False else {"description": "No value is valid here."}
        given = _plain(cast("Schema", schema), self._root)
        if isinstance(given.get("$ref"), str):
            return self._referenced(given["$ref"], given)
        made = mapped({key: value for key, value in given.items() if _keeps(key, value)}, self.shaped)
        if isinstance(given.get("additionalProperties"), bool):
            made["additionalProperties"] = given["additionalProperties"]
        if "object" in kinds_of(made):
            made.setdefault("properties", {})
        return with_note(made, lost(given, made))

    def _referenced(self, reference: str, given: Schema) -> Any:
        """The target of a reference, or the reference itself if replacing it would not end."""
        if reference in self._recursive or self._inlined >= MAX_INLINED:
            return {"$ref": f"#/$defs/{self._name(reference)}"}
        self._inlined += 1
        target = resolved(self._root, reference)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        return self.shaped({**cast("Schema", target), **beside} if isinstance(target, Mapping) else beside)

    def _name(self, reference: str) -> str:
        name = reference.rsplit("/", 1)[1]
        if reference not in self._kept and name in self._kept.values():
            name = f"{name}_{len(self._kept)}"
        return self._kept.setdefault(reference, name)


def _keeps(key: str, value: Any) -> bool:
    if key == "format":
        return value in _FORMATS
    if key == "enum":
        return all(type(item) in (str, int, float) for item in value)
    return key in _KEPT and (key != "items" or not isinstance(value, list))


def _plain(schema: Schema, root: Schema) -> Schema:
    """The schema with `const`, `oneOf` and `allOf` in forms that the field accepts."""
    plain = dict(schema)
    if type(plain.get("const")) in (str, int, float):
        plain.setdefault("enum", [plain.pop("const")])
    if "oneOf" in plain and "anyOf" not in plain:
        plain["anyOf"] = plain.pop("oneOf")
    for part in plain.pop("allOf", ()):
        if isinstance(part, Mapping):
            plain = both(plain, dict(_plain(_target(cast("Schema", part), root), root)))
    return plain


def _target(schema: Schema, root: Schema) -> Schema:
    """A subschema that is only a reference, replaced by its target."""
    target = resolved(root, schema["$ref"]) if "$ref" in schema else None
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**cast("Schema", target), **beside} if isinstance(target, Mapping) else schema


def _tool(offer: Offer) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": offer.name}
    if offer.description is not None:
        tool["description"] = offer.description
    return {**tool, "parametersJsonSchema": offer.parameters}


def _tools(offers: Sequence[Offer], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"functionDeclarations": tools}] if tools else []


def _choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    """`VALIDATED` lets the model answer without a call, and makes a call follow its schema."""
    if name is not None:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    optional = "VALIDATED" if strict else "AUTO"
    return {"functionCallingConfig": {"mode": "ANY" if requirement.kind == "at_least_one" else optional}}


FUNCTIONS: Final = ProviderForm(
    title="Gemini",
    names=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"),
    properties=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    parameters=parameters,
    tool=_tool,
    tools=_tools,
    choice=_choice,
    request=lambda tools, choice: {"tools": tools, "toolConfig": choice},
)
