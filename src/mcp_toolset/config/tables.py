"""`Table`: a part of a configuration that every start reads; its keys are checked by pydantic's core alone.

Pydantic's models take as long to import and build as a server takes to start. What few files have is a model
all the same; see `sections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, ClassVar, Final, Self, cast

from pydantic_core import SchemaValidator

from mcp_toolset._records import dataclass

__all__ = ["ANY", "BOOL", "TABLE", "TEXT", "TEXTS", "TEXT_TABLE", "Key", "Schema", "Table", "key", "one_of"]

Schema = Mapping[str, Any]
"""What pydantic's core is to check (`pydantic_core.core_schema`)."""

TEXT: Final[Schema] = {"type": "str"}
TEXTS: Final[Schema] = {"type": "list", "items_schema": TEXT}
TEXT_TABLE: Final[Schema] = {"type": "dict", "keys_schema": TEXT, "values_schema": TEXT}
BOOL: Final[Schema] = {"type": "bool"}
ANY: Final[Schema] = {"type": "any"}
TABLE: Final[Schema] = {"type": "dict", "keys_schema": TEXT, "values_schema": ANY}


def one_of(*values: str) -> Schema:
    return {"type": "literal", "expected": [*values]}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Attributes:
        schema: What its value has to be.
        description: How to write it.
        alias: Its name in files, if that is no Python name.
    """

    schema: Schema
    description: str
    alias: str | None = None


def key(schema: Schema, description: str, default: Any = None, *, alias: str | None = None) -> Any:
    """A key of a table, with what it is where a file does not have it."""
    said = {"key": Key(schema, description, alias)}
    if isinstance(default, list | dict):
        return field(default_factory=type(cast("list[Any]", default)), metadata=said)
    return field(default=default, metadata=said)


class Table:
    """A part of a configuration file; its values stay out of errors. Null counts as absent."""

    __slots__ = ()

    unknown: ClassVar = "ignore"

    @classmethod
    def model_validate(cls, data: object) -> Self:
        """The table of decoded JSON."""
        members = cast("Mapping[str, object]", data)
        given = {name: value for name, value in members.items() if value is not None}
        return cls(**_validator(cls).validate_python(given))


@cache
def keys_of(table: type[Table]) -> Mapping[str, Key]:
    """The keys of a table by the names of their fields."""
    return {one.name: one.metadata["key"] for one in fields(cast("Any", table))}


@cache
def _validator(table: type[Table]) -> SchemaValidator:
    schema: Any = {
        "type": "typed-dict",
        "fields": {
            name: {
                "type": "typed-dict-field",
                "schema": one.schema,
                "required": False,
                "validation_alias": one.alias or name,
            }
            for name, one in keys_of(table).items()
        },
        "config": {
            "coerce_numbers_to_str": True,
            "hide_input_in_errors": True,
            "extra_fields_behavior": table.unknown,
        },
    }
    return SchemaValidator(schema)
