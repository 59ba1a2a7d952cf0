"""`Table`: a part of a configuration that every start reads; its keys are checked by pydantic's core alone.

Pydantic's models take as long to import and build as a server takes to start. What few files have is a model
all the same; see `sections`. Here are also the words that say how a server is reached and treated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, cast

from pydantic_core import SchemaValidator

from mcp_toolset._records import dataclass

Transport: TypeAlias = Literal["stdio", "http", "sse"]
"""The transport to a server; `http` is streamable HTTP."""

ChangePolicy: TypeAlias = Literal["accept", "warn", "quarantine"]
"""The action on a definition that differs from its pin."""

HiddenTextPolicy: TypeAlias = Literal["strip", "flag", "refuse"]
"""The action on invisible and control characters."""

SessionRule: TypeAlias = Literal["auto", "shared", "capabilities", "client", "call"]
"""Which callers of a server share a session with it; see docs/sessions.md."""

ProtocolRule: TypeAlias = Literal["auto", "legacy", "modern"]
"""The era of the protocol to use with a server: up to 2025-11-25, from 2026-07-28, or the server's newest."""

Era: TypeAlias = Literal["legacy", "modern"]
"""The revisions up to 2025-11-25, which have sessions, or those from 2026-07-28, which have none."""

StartRule: TypeAlias = Literal["lazy", "background", "eager"]
"""When a mounted server is started: by its first call, or with the hub; for `eager` ones lists wait."""

ArgumentRule: TypeAlias = Literal["strict", "lenient"]
"""The action on arguments that do not fit the schema: refuse, or repair where that is unambiguous."""

UnlistedRule: TypeAlias = Literal["refuse", "pass"]
"""The action on calls of tools and prompts that a server does not list; see docs/adopting.md."""

Asked: TypeAlias = Literal["elicitation", "roots", "sampling"]
"""The kinds of requests that a server may send to its client; see docs/sessions.md."""

Schema = Mapping[str, Any]
"""A schema for pydantic's core (`pydantic_core.core_schema`)."""

TEXT: Final[Schema] = {"type": "str"}
TEXTS: Final[Schema] = {"type": "list", "items_schema": TEXT}
TEXT_TABLE: Final[Schema] = {"type": "dict", "keys_schema": TEXT, "values_schema": TEXT}
BOOL: Final[Schema] = {"type": "bool"}
ANY: Final[Schema] = {"type": "any"}
TABLE: Final[Schema] = {"type": "dict", "keys_schema": TEXT, "values_schema": ANY}
COUNT: Final[Schema] = {"type": "int", "gt": 0, "strict": True}
SECONDS: Final[Schema] = {"type": "float", "gt": 0, "strict": True, "allow_inf_nan": False}
PATH: Final[Schema] = {
    "type": "str",
    "strict": True,
    "coerce_numbers_to_str": False,
    "min_length": 1,
    "metadata": {"path": True},
}
"""A path in the folder of the file; it is absolute once the file is read."""


def is_path(schema: Schema) -> bool:
    """True if a value is a path in the folder of the file."""
    return "path" in schema.get("metadata", ())


def one_of(*values: str) -> Schema:
    return {"type": "literal", "expected": [*values]}


def any_of(*schemas: Schema) -> Schema:
    return {"type": "union", "choices": [*schemas]}


class Meaning(NamedTuple):
    """The meaning of a key, and a value for it as a file may have it.

    The text is Markdown, and its links are relative to `docs/`.
    """

    text: str
    example: Any


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    schema: Schema  # what its value has to be
    description: str  # how to write it
    alias: str | None = None  # its name in files, if that is no Python name
    meaning: Meaning | None = None  # what it does
    live: bool = False  # whether a change of it in a file that is read again holds at once
    published: Mapping[str, Any] | None = None  # its JSON Schema, where the check of single values says less
    required: bool = False  # whether a table without it is refused


def key(
    schema: Schema,
    description: str,
    default: Any = None,
    *,
    alias: str | None = None,
    meaning: str = "",
    example: Any = None,
    live: bool = False,
    published: Mapping[str, Any] | None = None,
    secret: bool = False,
    required: bool = False,
) -> Any:
    """A key of a table, with what it is where a file does not have it; `Key` says what the others mean."""
    meant = Meaning(meaning, example) if meaning else None
    said = {"key": Key(schema, description, alias, meant, live, published, required)}
    if isinstance(default, list | dict):
        return field(
            default_factory=type(cast("list[Any]", default)), metadata=said, hash=False, repr=not secret
        )
    if required:
        return field(metadata=said, repr=not secret)
    return field(default=default, metadata=said, repr=not secret)


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
    return {one.name: one.metadata["key"] for one in fields(cast("Any", table)) if "key" in one.metadata}


@cache
def _validator(table: type[Table]) -> SchemaValidator:
    schema: Any = {
        "type": "typed-dict",
        "fields": {
            name: {
                "type": "typed-dict-field",
                "schema": one.schema,
                "required": one.required,
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
