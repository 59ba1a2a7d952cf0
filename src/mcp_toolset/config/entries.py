"""The keys of a server and of the section `toolset`; what is wrong with them is told in one line each.

Keys of other clients are ignored; see `keys`. The descriptions of the keys are the remedies in the errors.
What a key means is in `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, cast, get_args

from pydantic_core import ValidationError

from mcp_toolset._index import every_key, missing_keys, owners, rule_keys
from mcp_toolset._records import dataclass
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import (
    CLIENT_KEYS,
    GUARDS,
    NEVER_NULL,
    did_you_mean,
    misplaced,
    nearest,
    synonym,
    unknown_keys,
)
from mcp_toolset.config.tables import (
    ANY,
    BOOL,
    TABLE,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    ArgumentRule,
    Asked,
    ChangePolicy,
    Era,
    HiddenTextPolicy,
    ProtocolRule,
    Schema,
    SessionRule,
    StartRule,
    Table,
    UnlistedRule,
    any_of,
    key,
    keys_of,
    one_of,
)
from mcp_toolset.errors import ConfigError

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
WRONG_PLACE: Final = "is in the wrong place, where it has no effect"
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


_Model = TypeVar("_Model", bound=Table)


def null_rule(place: Place) -> ConfigError:
    return place.error("is null, so it would protect nothing", "give it a value, or remove it")


def validated(model: type[_Model], data: object, place: Place) -> _Model:
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    table = cast("dict[str, object]", data)
    if unsaid := [one for one in table if table[one] is None and one in NEVER_NULL]:
        raise null_rule(place.at(unsaid[0]))
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A key that is misspelt may be the one that is missing.
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    named = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        right = misplaced(named, holder=place.path)
        moved = f"move it to `{right}`" if right else ""
        known = known_keys(model)
        every = "use one of " + ", ".join(f"`{key}`" for key in known)
        mend = did_you_mean(named, known) or moved or every
        cause = "unknown option"
    else:
        cause = first["msg"].removeprefix("Input ").lower()
        mend = f"write `{named}` as {_descriptions(model)[named]}"
    raise place.at(*first["loc"]).error(cause, mend, len(problems) - 1)


def server_keys(table: Mapping[str, object], place: Place) -> list[str]:
    if missing := [one for one in table if one in missing_keys()]:
        raise place.at(missing[0]).error("is not part of this installation", "install mcp-toolset again")
    known = {*known_keys(ServerEntry), *CLIENT_KEYS}
    unknown = unknown_keys(table, known)
    for written in unknown:
        # Our keys come first: they protect the user.
        meant = synonym(written, table[written]) or nearest(written, known_keys(ServerEntry))
        meant = meant or nearest(written, CLIENT_KEYS)
        if meant is not None:
            raise place.at(written).error("unknown key", f"did you mean `{meant}`?")
        right = misplaced(written) or ""
        if right.startswith(GUARDS):
            own = right.split(".")[1] in ("permissions", *rule_keys()) and ".for." not in f"{right}."
            moved = "mcpServers.NAME" + right.removeprefix("toolset") if own else right
            raise place.at(written).error(WRONG_PLACE, f"move it to `{moved}`")
    return unknown


def known_keys(model: type[Table]) -> list[str]:
    """The keys of a part, those of extensions among them."""
    own = list(_descriptions(model))
    if model is ToolsetSection:
        return [*own, *every_key()]
    return [*own, *owners("entry")] if model is ServerEntry else own


@cache
def _descriptions(model: type[Table]) -> dict[str, str]:
    return {one.alias or name: one.description for name, one in keys_of(model).items()}
