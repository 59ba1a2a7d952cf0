"""JSON Schema from Python types, made by pydantic: of parameters, and of a form for the user."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError

from mcp_toolset._records import replace
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.result import ElicitationAnswer

UNUSABLE: Final = (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    SchemaError,
    TypeError,
)
"""Errors that pydantic raises for a type or constraint that has no schema."""


_PLAIN: Final = frozenset({str, int, bool, type(None)})


class _Methods(dict[str, Callable[[Any], Any]]):
    """The generator's methods by schema type, looked up when first needed: a few of seventy are used."""

    def __init__(self, generator: GenerateJsonSchema) -> None:
        super().__init__()
        self._generator = generator

    def __missing__(self, kind: str) -> Callable[[Any], Any]:
        method = self[kind] = getattr(self._generator, f"{kind.replace('-', '_')}_schema")
        return method


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, skipkeys=True, default=lambda other: None)
    except ValueError:
        return False
    return True


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without titles from field names, which cost tokens, and defaults that JSON lacks."""

    ignored_warning_kinds = {*GenerateJsonSchema.ignored_warning_kinds, "non-serializable-default"}

    def build_schema_type_to_method(self) -> Any:
        return _Methods(self)

    def encode_default(self, dft: Any) -> Any:
        if type(dft) in _PLAIN:
            return dft
        if not _is_finite(dft):
            raise PydanticSerializationError(f"the default {dft!r} has a number that JSON does not have")
        return super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def reason_of(fault: Exception) -> str:
    lines = [line.strip() for line in str(fault).split("\n\n")[0].splitlines()]
    return lines[-1] if isinstance(fault, SchemaError) else lines[0]


_FIELD: Final = "value"  # The only field of a form for a type that is no object.


def answer_form(wanted: Any) -> tuple[dict[str, Any], Callable[[ElicitationAnswer], ElicitationAnswer]]:
    """The schema of the form for a type, and the function that reads its answers.

    The type is a scalar, `Literal`, `Enum`, list of choices, dataclass or pydantic model.
    """
    if isinstance(wanted, list | tuple):
        wanted = Literal[tuple(cast("list[str]", wanted))]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        made = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as fault:
        raise DefinitionError(
            f"a question cannot ask for {wanted!r}: {str(fault).splitlines()[0]}; ask for str, int, "
            "float, bool, a Literal, an Enum, a list of choices, or a dataclass or model of these"
        ) from None
    shape = _inlined(made, made.get("$defs", {}))
    is_object = shape.get("type") == "object"

    def read(answer: ElicitationAnswer) -> ElicitationAnswer:
        if not answer.accepted:
            return answer
        content = dict(answer.content)
        try:
            value = adapter.validate_python(content if is_object else content.get(_FIELD))
        except ValidationError as fault:
            why = "; ".join(
                f"{'.'.join(map(str, error['loc'])) or _FIELD}: {error['msg']}" for error in fault.errors()
            )
            raise CallError(f"the answer to the question does not fit: {why}") from None
        return replace(answer, value=value)

    wrapped = {"type": "object", "properties": {_FIELD: shape}, "required": [_FIELD]}
    return shape if is_object else wrapped, read


def _inlined(shape: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in shape.items() if key != "$defs"}
    if isinstance(name := made.pop("$ref", None), str):
        made = {**_inlined(defs[name.removeprefix("#/$defs/")], defs), **made}
    choices = [one for one in made.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        # An optional field may be left out; clients have no field for null.
        del made["anyOf"]
        made = {**_inlined(choices[0], defs), **made}
        if made.get("default", "") is None:
            del made["default"]
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if isinstance(fields := made.get("properties"), dict):
        made["properties"] = {
            name: _inlined(field, defs) for name, field in cast("dict[str, Any]", fields).items()
        }
    return made
