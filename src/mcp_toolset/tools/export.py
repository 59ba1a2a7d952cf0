"""A view's tools in the forms that model providers take (O7).

Everything is a copy: a provider's limits never reach a definition, and what is done to an export
never reaches the view.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.names import MAX_NAME_LENGTH, public_name

if TYPE_CHECKING:
    from mcp_toolset.tools.view import ToolBinding, ToolView

_OPENAI_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_MAPS_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SCHEMAS: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)


def to_openai(view: ToolView) -> list[dict[str, Any]]:
    """The `tools` of a chat completion request, in the view's order (O7).

    Deferred tools are left out. Every object schema has `properties` (L13), and no schema has `$schema`.

    Raises:
        DefinitionError: a name is longer than 64 or has a character outside `[A-Za-z0-9_-]`, which
            the provider would refuse; the message has the mend.
    """
    return [_openai_tool(binding) for binding in view.values() if not binding.deferred]


def _openai_tool(binding: ToolBinding) -> dict[str, Any]:
    name = binding.name
    if not _OPENAI_NAME.fullmatch(name):
        mend = f".renamed({{{name!r}: {public_name(name)!r}}})"
        raise DefinitionError(
            f"tool {name!r} cannot be offered to OpenAI under this name; use {mend} on its toolset"
        )
    function: dict[str, Any] = {"name": name}
    if binding.definition.description is not None:
        function["description"] = binding.definition.description
    function["parameters"] = _portable(binding.definition.input_schema)
    return {"type": "function", "function": function}


def _portable(schema: Any) -> Any:
    """A copy of a schema without `$schema`, whose object schemas all have `properties`.

    Only places where a schema stands are looked into: a default or an enum may hold anything.
    """
    if not isinstance(schema, Mapping):
        return deepcopy(schema)
    keywords = cast("Mapping[str, Any]", schema)
    copy = {key: _keyword(key, value) for key, value in keywords.items() if key != "$schema"}
    kinds = copy.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        copy.setdefault("properties", {})
    return copy


def _keyword(key: str, value: Any) -> Any:
    if key in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
        return {name: _portable(schema) for name, schema in cast("Mapping[str, Any]", value).items()}
    if key in _LISTS_OF_SCHEMAS and isinstance(value, list):
        return [_portable(schema) for schema in cast("list[Any]", value)]
    return _portable(value) if key in _SCHEMAS else deepcopy(value)
