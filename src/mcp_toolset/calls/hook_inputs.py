"""The typed input of hooks: how its annotation is parsed, and inputs that a tool's arguments never fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Final, cast, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from mcp_toolset.errors import DefinitionError

_COMBINED: Final = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")
"""Keywords that allow members of an object beside those in `properties`."""


def input_adapter(hook: str, annotation: Any) -> TypeAdapter[Any] | None:
    """A parser from arguments to a model, dataclass or TypedDict; `None` for any other type."""
    if not _is_structure(annotation):
        return None
    try:
        return TypeAdapter(annotation)
    except PydanticUserError as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(
            f"hook {hook}: its input cannot be read as {annotation!r}: {reason}; annotate it with a model "
            "that pydantic can read, or as dict[str, Any]"
        ) from None


def _is_structure(annotation: object) -> bool:
    if not isinstance(annotation, type) or get_origin(annotation) is not None:
        return False
    kind = cast("type[Any]", annotation)
    # On Python 3.11 pydantic requires the TypedDict of `typing_extensions`, which `typing` does not know.
    is_typed_dict = hasattr(kind, "__required_keys__") and hasattr(kind, "__total__")
    return issubclass(kind, BaseModel) or is_typed_dict or is_dataclass(kind)


def require_fitting(
    hook: str, annotation: Any, adapter: TypeAdapter[Any], tool: str, schema: Mapping[str, Any]
) -> None:
    """Raise `DefinitionError` if no arguments of a tool can be parsed as the input of a hook."""
    wanted = _shape(annotation, adapter)
    if wanted is None or any(part in schema for part in _COMBINED) or schema.get("additionalProperties"):
        return
    has: Mapping[str, Any] = schema.get("properties") or {}
    fields: Mapping[str, Any] = wanted.get("properties") or {}
    foreign = [name for name in wanted.get("required", ()) if name not in has]
    if not foreign and fields and has and not fields.keys() & has.keys():
        foreign = list(fields)
    where = f"hook {hook}: its input {getattr(annotation, '__name__', repr(annotation))}"
    if foreign:
        parameters = ", ".join(map(repr, has)) or "no parameters"
        raise DefinitionError(
            f"{where} has {', '.join(map(repr, foreign))}, and tool {tool!r} has {parameters}; "
            "annotate the input with the tool's own model, or as dict[str, Any]"
        )
    lacking = [name for name in schema.get("required", ()) if name not in fields]
    if lacking and wanted.get("additionalProperties") is False:
        raise DefinitionError(
            f"{where} forbids {', '.join(map(repr, lacking))}, which tool {tool!r} always has; "
            "add the field, or allow extra ones"
        )


def _shape(annotation: Any, adapter: TypeAdapter[Any]) -> Mapping[str, Any] | None:
    if _is_loose(annotation):
        return None
    try:
        return adapter.json_schema()
    except PydanticInvalidForJsonSchema:
        return None


def _is_loose(model: Any) -> bool:
    """True for a model whose fields have several names, so that its schema does not have all of them."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return False
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    aliases = (field.validation_alias for field in model.model_fields.values())
    return bool(by_name) or any(alias is not None and not isinstance(alias, str) for alias in aliases)
