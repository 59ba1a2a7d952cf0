"""JSON Schema from types, as every definition of this package shows it; pydantic makes it."""

from __future__ import annotations

from typing import Any, Final

from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

UNUSABLE: Final = (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    SchemaError,
    TypeError,
)
"""What pydantic raises for a type, or a constraint on it, that it cannot make a schema of."""


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic derives from field names: a model pays for each.

    A default that JSON cannot say, such as a sentinel, is left out of the schema in silence; it is
    still what the function gets.
    """

    ignored_warning_kinds = {*GenerateJsonSchema.ignored_warning_kinds, "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False


def reason_of(fault: Exception) -> str:
    """Why a type has no schema, in one line: pydantic says the inmost cause last, and its advice after it."""
    lines = [line.strip() for line in str(fault).split("\n\n")[0].splitlines()]
    return lines[-1] if isinstance(fault, SchemaError) else lines[0]
