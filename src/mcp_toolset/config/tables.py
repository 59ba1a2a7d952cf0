"""`Table`: a part of a configuration whose keys pydantic's core checks alone; those that every start reads.

Pydantic's models take as long to import and build as a server takes to start. What few files have is a model
all the same; see `sections`. Here are also the words that say how a server is reached and treated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, cast, get_args

from pydantic_core import SchemaValidator

from mcp_toolset._records import dataclass

Transport: TypeAlias = Literal["stdio", "http", "sse"]
"""The transport to a server; `http` is streamable HTTP."""

ChangePolicy: TypeAlias = Literal["accept", "warn", "quarantine"]
"""The action on a definition that differs from its pin."""

HiddenTextPolicy: TypeAlias = Literal["strip", "flag", "refuse"]
"""The action on invisible and control characters."""

SessionRule: TypeAlias = Literal["auto", "shared", "capabilities", "client", "call"]
"""The callers of a server that share a session with it; see docs/sessions.md."""

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
    metadata = {"key": Key(schema, description, alias, meant, live, published, required)}
    if isinstance(default, list | dict):
        return field(
            default_factory=type(cast("list[Any]", default)), metadata=metadata, hash=False, repr=not secret
        )
    if required:
        return field(metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


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


_MILLISECONDS_FROM = 10_000
"""A `timeout` this large is in milliseconds: some clients count so, others in seconds, with the same key."""


def seconds(value: object) -> object:
    """A time as the file has it, in seconds."""
    if isinstance(value, int | float) and value >= _MILLISECONDS_FROM:
        return value / 1000
    return value


def _no_prefix(value: object) -> object:
    return "" if value is False else value


def prepared(prepare: Any, schema: Schema) -> Schema:
    """A value that is prepared before it is checked."""
    return {"type": "function-before", "function": {"type": "no-info", "function": prepare}, "schema": schema}


_TIME: Final[Schema] = {"type": "float", "gt": 0, "allow_inf_nan": False}
_TIMEOUT = prepared(seconds, _TIME)
_PREFIX = prepared(_no_prefix, TEXT)
_ENVIRONMENT: Final[Schema] = {**TABLE, "values_schema": {"type": "nullable", "schema": TEXT}}
_POLICY = one_of(*get_args(ChangePolicy))
_HIDING = one_of(*get_args(HiddenTextPolicy))
_RULE = one_of(*get_args(StartRule))
_REPAIR = one_of(*get_args(ArgumentRule))
_TEXT = "a string"
LIST_OF_TEXTS = "a list of strings"
"""The remedy for a list of another kind."""
_SECONDS = "a positive number of seconds"
_SWITCH = "true or false"
_CHANGES = '"accept", "warn" or "quarantine"'
_HIDDEN_TEXT = '"strip", "flag" or "refuse"'
_RULES = "an object with `allow`, `ask` and `deny`"
_START = "one of lazy, background and eager"
_TABLE = "an object with string values"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry(Table):
    """One server as a client's file has it, with our own options."""

    type: str | None = key(TEXT, _TEXT)
    transport: str | None = key(TEXT, _TEXT)
    command: str | None = key(TEXT, _TEXT)
    args: list[str] = key(TEXTS, LIST_OF_TEXTS, [])
    env: dict[str, str | None] = key(_ENVIRONMENT, _TABLE, {})
    env_file: str | None = key(TEXT, "the path of a file, as a string", alias="envFile")
    cwd: str | None = key(TEXT, _TEXT)
    url: str | None = key(TEXT, _TEXT)
    server_url: str | None = key(TEXT, _TEXT, alias="serverUrl")
    http_url: str | None = key(TEXT, _TEXT, alias="httpUrl")
    headers: dict[str, str] = key(TEXT_TABLE, _TABLE, {})
    disabled: bool = key(BOOL, _SWITCH, False)
    enabled: bool = key(BOOL, _SWITCH, True)
    include_tools: list[str] | None = key(TEXTS, LIST_OF_TEXTS, alias="includeTools")
    exclude_tools: list[str] = key(TEXTS, LIST_OF_TEXTS, [], alias="excludeTools")
    disabled_tools: list[str] = key(TEXTS, LIST_OF_TEXTS, [], alias="disabledTools")
    codex_enabled: list[str] | None = key(TEXTS, LIST_OF_TEXTS, alias="enabled_tools")
    codex_disabled: list[str] = key(TEXTS, LIST_OF_TEXTS, [], alias="disabled_tools")
    copilot_tools: list[str] | None = key(TEXTS, LIST_OF_TEXTS + ' such as `["*"]`', alias="tools")
    deferred: bool | None = key(BOOL, _SWITCH)
    prefix: str | None = key(_PREFIX, "a string, null for the default, or false for none")
    names: dict[str, str] = key(TEXT_TABLE, _TABLE, {})
    include: list[str] | None = key(TEXTS, "a list of patterns such as `read_*`")
    exclude: list[str] = key(TEXTS, "a list of patterns such as `delete_*`", [])
    timeout: float | None = key(_TIMEOUT, _SECONDS)
    start_timeout: float | None = key(_TIMEOUT, _SECONDS)
    pins: ChangePolicy | None = key(_POLICY, _CHANGES)
    new_tools: ChangePolicy | None = key(_POLICY, _CHANGES)
    hidden_text: HiddenTextPolicy | None = key(_HIDING, _HIDDEN_TEXT)
    sessions: SessionRule = key(
        one_of(*get_args(SessionRule)), "one of auto, shared, capabilities, client and call", "auto"
    )
    declare: list[Asked] = key(
        {"type": "list", "items_schema": one_of(*get_args(Asked))},
        "a list of some of elicitation, roots and sampling",
        [],
    )
    protocol: ProtocolRule = key(one_of(*get_args(ProtocolRule)), "one of auto, legacy and modern", "auto")
    start: StartRule | None = key(_RULE, _START)
    idle_timeout: float | None = key(_TIME, _SECONDS)
    unlisted: UnlistedRule = key(one_of(*get_args(UnlistedRule)), '"refuse" or "pass"', "refuse")
    task_timeout: float | None = key(
        {"type": "float", "ge": 0, "allow_inf_nan": False}, "a number of seconds, or 0"
    )
    arguments: ArgumentRule | None = key(_REPAIR, "one of strict and lenient")
    eras: dict[str, Era] = key(
        {**TABLE, "values_schema": one_of(*get_args(Era))},
        'an object such as {"a_tool": "legacy"}, or "modern"',
        {},
    )
    permissions: object = key(ANY, _RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetSection(Table):
    """The `toolset` section. Only this package reads it, so an unknown key is a mistake."""

    unknown: ClassVar = "forbid"

    name: str = key({**TEXT, "min_length": 1}, "a string that is not empty", "mcp-toolset")
    deferred: bool = key(BOOL, _SWITCH, False)
    timeout: float | None = key(_TIMEOUT, _SECONDS)
    start_timeout: float | None = key(_TIMEOUT, _SECONDS)
    start: StartRule = key(_RULE, _START, "background")
    idle_timeout: float | None = key(_TIME, _SECONDS)
    client_prefix: str = key(TEXT, "what the client puts before names, such as `mcp__tools__`", "")
    pins: ChangePolicy | None = key(_POLICY, _CHANGES)
    new_tools: ChangePolicy | None = key(_POLICY, _CHANGES)
    hidden_text: HiddenTextPolicy = key(_HIDING, _HIDDEN_TEXT, "strip")
    arguments: ArgumentRule = key(_REPAIR, "one of strict and lenient", "lenient")
    lock: str | None = key({**TEXT, "min_length": 1}, "the path of a file, as a string")
    list_timeout: float | None = key(_TIMEOUT, _SECONDS)
    permissions: object = key(ANY, _RULES)
    log: bool | dict[str, Any] = key(
        any_of(BOOL, TABLE), 'true, false or an object such as {"level": "debug"}', True
    )
    ready: dict[str, Any] | None = key(TABLE, 'an object such as {"servers": ["github"]}')
    http: dict[str, Any] | None = key(TABLE, 'an object such as {"max_sessions_per_peer": 2000}')
    egress: dict[str, Any] | None = key(TABLE, 'an object such as {"allow": ["10.0.0.0/8"]}')
