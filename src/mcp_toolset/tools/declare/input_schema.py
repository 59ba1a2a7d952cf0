"""A type as the input of a tool: its schema, and the parser from a call's arguments to a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.declare.signature import described_by, invalid_arguments
from mcp_toolset.tools.schema.json_schema import UNUSABLE, PlainSchema, reason_of

VALUE: Final = "value"
"""The only parameter of an input that is not an object, such as an enum."""


@dataclass(frozen=True, slots=True)
class InputReader:
    """Parses the typed input from a call's arguments."""

    adapter: TypeAdapter[Any]
    wrapped: bool

    def __call__(self, call: ToolCall) -> Any:
        """The input. Raises `InvalidArgumentsError`: the arguments do not fit."""
        try:
            given = call.arguments[VALUE] if self.wrapped else call.arguments
        except KeyError:
            raise InvalidArgumentsError(
                f"Invalid arguments for {call.name}: {VALUE}: Field required"
            ) from None
        try:
            return self.adapter.validate_python(given)
        except ValidationError as fault:
            return self._from_json(call, given, fault)

    def arguments_of(self, value: Any) -> dict[str, Any]:
        try:
            plain = self.adapter.dump_python(
                value, mode="json", by_alias=True, exclude_unset=True, warnings=False
            )
        except ValueError as fault:
            raise InvalidArgumentsError(f"the input {value!r} has no JSON form: {fault}") from None
        return {VALUE: plain} if self.wrapped else plain

    def _from_json(self, call: ToolCall, given: Any, fault: ValidationError) -> Any:
        """Parse the arguments as JSON: in pydantic's strict mode, a date is a string in JSON."""
        try:
            return self.adapter.validate_json(to_json(given))
        except ValueError:
            raise InvalidArgumentsError(invalid_arguments(call.name, fault)) from None


def read_input(model: Any, place: str) -> tuple[InputReader, dict[str, Any]]:
    """A parser for a type, and its schema as the schema of an object."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(model)
        schema = adapter.json_schema(schema_generator=PlainSchema)
    except UNUSABLE as fault:
        raise DefinitionError(
            f"{place} has no JSON Schema: {reason_of(fault)}; use fields of types that JSON can carry"
        ) from None
    definitions = schema.pop("$defs", {})
    wrapped = not _is_object(schema, definitions)
    if wrapped:
        schema = {"properties": {VALUE: schema}, "required": [VALUE], "additionalProperties": False}
    schema.pop("title", None)
    shown: dict[str, Any] = {"type": "object", **schema}
    return InputReader(adapter, wrapped), shown | ({"$defs": definitions} if definitions else {})


def _is_object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """Whether every value of the type is an object; a recursive type refers to itself by name."""
    reference: str | None = schema.get("$ref")
    if reference is not None:
        return _is_object(definitions[reference.rsplit("/", 1)[-1]], definitions)
    choices: list[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or []
    if choices:
        return all(_is_object(choice, definitions) for choice in choices)
    return schema.get("type") == "object"


def described(schema: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The description from a docstring, and the schema with the descriptions of its fields."""
    doc = described_by(schema.pop("description", ""))
    properties: dict[str, Any] = schema.get("properties", {})
    for name, text in doc.parameters.items():
        if name in properties:
            properties[name] = {"description": text, **properties[name]}
    return doc.text, schema
