"""Hooks whose input is of a model that the arguments of their tool never fit: refused when given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from mcp_toolset.calls.pipeline.hook_adapters import BoundHook
    from mcp_toolset.tools.core.definition import ToolDefinition

_COMBINED: Final = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")
"""Parts of a schema with which its properties do not say what an object may have."""


def require_fitting(hook: BoundHook, definition: ToolDefinition) -> None:
    """Go on only if some arguments of a tool can be read as a hook's input.

    Raises:
        DefinitionError: the input needs a field that the tool does not have, has none of its fields,
            or forbids one that the tool needs.
    """
    wanted = _shape(hook)
    schema = definition.input_schema
    if wanted is None or any(part in schema for part in _COMBINED) or schema.get("additionalProperties"):
        return
    has: Mapping[str, Any] = schema.get("properties") or {}
    fields: Mapping[str, Any] = wanted.get("properties") or {}
    foreign = [name for name in wanted.get("required", ()) if name not in has]
    if not foreign and fields and has and not fields.keys() & has.keys():
        foreign = list(fields)
    where = f"hook {hook.shown}: its input {hook.input_name}"
    if foreign:
        parameters = ", ".join(map(repr, has)) or "no parameters"
        raise DefinitionError(
            f"{where} has {', '.join(map(repr, foreign))}, and tool {definition.name!r} has {parameters}; "
            "annotate the input with the tool's own model, or as dict[str, Any]"
        )
    lacking = [name for name in schema.get("required", ()) if name not in fields]
    if lacking and wanted.get("additionalProperties") is False:
        raise DefinitionError(
            f"{where} forbids {', '.join(map(repr, lacking))}, which tool {definition.name!r} always has; "
            "add the field, or allow extra ones"
        )


def _shape(hook: BoundHook) -> Mapping[str, Any] | None:
    """The JSON Schema of a hook's input; `None` if that does not tell by what names it reads its fields."""
    if hook.adapter is None or _is_loose(hook.input):
        return None
    try:
        return hook.adapter.json_schema()
    except PydanticInvalidForJsonSchema:
        return None


def _is_loose(model: Any) -> bool:
    """Whether it reads its fields by further names."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return False
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    aliases = (field.validation_alias for field in model.model_fields.values())
    return bool(by_name) or any(alias is not None and not isinstance(alias, str) for alias in aliases)
