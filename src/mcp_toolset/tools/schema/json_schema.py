"""JSON Schema from Python types, made by pydantic; every definition of this package uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError

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
    """Whether a value of plain data has no NaN and no infinity."""
    try:
        json.dumps(value, allow_nan=False, skipkeys=True, default=lambda other: None)
    except ValueError:
        return False
    return True


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic makes from field names: each costs tokens.

    A default without a JSON form, such as a sentinel, is left out of the schema silently; the function
    still gets it.
    """

    ignored_warning_kinds = {*GenerateJsonSchema.ignored_warning_kinds, "non-serializable-default"}

    def build_schema_type_to_method(self) -> Any:
        """The generator's methods, looked up one at a time."""
        return _Methods(self)

    def encode_default(self, dft: Any) -> Any:
        """A default as JSON; a value that is JSON already needs no adapter."""
        if type(dft) in _PLAIN:
            return dft
        if not _is_finite(dft):
            raise PydanticSerializationError(f"the default {dft!r} has a number that JSON does not have")
        return super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def reason_of(fault: Exception) -> str:
    """Why a type has no schema, in one line: pydantic names the innermost cause last, then its advice."""
    lines = [line.strip() for line in str(fault).split("\n\n")[0].splitlines()]
    return lines[-1] if isinstance(fault, SchemaError) else lines[0]
