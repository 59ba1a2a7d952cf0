"""pydantic models of what a configuration file may contain, and their errors as one line each.

Keys of other clients are ignored; see `keys`. The descriptions of the fields are the remedies in the errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import CLIENT_KEYS, did_you_mean, nearest, synonym, unknown_keys
from mcp_toolset.config.rules import (
    ArgumentRule,
    Asked,
    ChangePolicy,
    Era,
    HiddenTextPolicy,
    ProtocolRule,
    SessionRule,
    StartRule,
)

__all__ = [
    "AuditEntry",
    "CodeEntry",
    "TEXTS",
    "CallersEntry",
    "Entry",
    "InputEntry",
    "ServerEntry",
    "ToolsetSection",
    "known_keys",
    "server_keys",
    "validated",
]

_MILLISECONDS_FROM = 10_000
"""A `timeout` this large is in milliseconds: some clients count so, others in seconds, with the same key."""


def _seconds(value: object) -> object:
    if isinstance(value, int | float) and value >= _MILLISECONDS_FROM:
        return value / 1000
    return value


def _no_prefix(value: object) -> object:
    return "" if value is False else value


_Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Texts = list[str]
_TEXT = "a string"
_Some = Annotated[list[str], Field(min_length=1)]
_Names = tuple[str, ...] | None
TEXTS = "a list of strings"
"""The remedy for a list of another kind."""
_SECONDS = "a positive number of seconds"
_Count = Annotated[int, Field(gt=0, strict=True)]
_COUNT = "a positive whole number"
_SWITCH = "true or false"
_CHANGES = '"accept", "warn" or "quarantine"'
_HIDDEN_TEXT = '"strip", "flag" or "refuse"'
_RULES = "an object with `allow`, `ask` and `deny`"
_START = "one of lazy, background and eager"
_TABLE = "an object with string values"
_LIMITS = 'an object such as {"*": {"rate": "60/min"}}'


class Entry(BaseModel):
    """A part of a configuration file; its values stay out of errors."""

    # Pydantic would quote the offending input, which may be a secret.
    model_config = ConfigDict(
        frozen=True, extra="ignore", coerce_numbers_to_str=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        table = cast("dict[str, Any]", data)
        return {key: value for key, value in table.items() if value is not None}


class CallersEntry(Entry):
    """The callers that a part of a configuration is for."""

    model_config = ConfigDict(extra="forbid")

    principals: _Some | None = Field(None, description=TEXTS + ", the names of callers")
    roles: _Some | None = Field(None, description=TEXTS)
    scopes: _Some | None = Field(None, description=TEXTS)

    def who(self, place: Place) -> tuple[_Names, _Names, _Names]:
        """The names, roles and scopes.

        Raises:
            ConfigError: there are none.
        """
        if self.principals is None and self.roles is None and self.scopes is None:
            raise place.error("does not say for which callers it is", "add `principals`, `roles` or `scopes`")
        return _tuple(self.principals), _tuple(self.roles), _tuple(self.scopes)


def _tuple(names: list[str] | None) -> _Names:
    return None if names is None else tuple(names)


class ServerEntry(Entry):
    """One server as a client's file has it, with our own options."""

    type: str | None = Field(None, description=_TEXT)
    transport: str | None = Field(None, description=_TEXT)
    command: str | None = Field(None, description=_TEXT)
    args: _Texts = Field([], description=TEXTS)
    env: dict[str, str | None] = Field({}, description=_TABLE)
    env_file: str | None = Field(None, alias="envFile", description="the path of a file, as a string")
    cwd: str | None = Field(None, description=_TEXT)
    url: str | None = Field(None, description=_TEXT)
    server_url: str | None = Field(None, alias="serverUrl", description=_TEXT)
    http_url: str | None = Field(None, alias="httpUrl", description=_TEXT)
    headers: dict[str, str] = Field({}, description=_TABLE)
    disabled: bool = Field(False, description=_SWITCH)
    enabled: bool = Field(True, description=_SWITCH)
    include_tools: _Texts | None = Field(None, alias="includeTools", description=TEXTS)
    exclude_tools: _Texts = Field([], alias="excludeTools", description=TEXTS)
    disabled_tools: _Texts = Field([], alias="disabledTools", description=TEXTS)
    codex_enabled: _Texts | None = Field(None, alias="enabled_tools", description=TEXTS)
    codex_disabled: _Texts = Field([], alias="disabled_tools", description=TEXTS)
    copilot_tools: _Texts | None = Field(None, alias="tools", description=TEXTS + ' such as `["*"]`')
    deferred: bool | None = Field(None, description=_SWITCH)
    prefix: Annotated[str | None, BeforeValidator(_no_prefix)] = Field(
        None, description="a string, null for the default, or false for none"
    )
    names: dict[str, str] = Field({}, description=_TABLE)
    include: _Texts | None = Field(None, description="a list of patterns such as `read_*`")
    exclude: _Texts = Field([], description="a list of patterns such as `delete_*`")
    timeout: _Seconds | None = Field(None, description=_SECONDS)
    start_timeout: _Seconds | None = Field(None, description=_SECONDS)
    pins: ChangePolicy | None = Field(None, description=_CHANGES)
    new_tools: ChangePolicy | None = Field(None, description=_CHANGES)
    hidden_text: HiddenTextPolicy | None = Field(None, description=_HIDDEN_TEXT)
    sessions: SessionRule = Field("auto", description="one of auto, shared, capabilities, client and call")
    forward_authorization: bool = Field(False, description=_SWITCH)
    forward: dict[str, str] = Field({}, description='an object such as {"X-User": "identity.name"}')
    auth: Any = Field(None, description='"oauth" or an object such as {"type": "oauth"}')
    oauth: Any = Field(None, description="an object, as other clients write it")
    declare: list[Asked] = Field([], description="a list of some of elicitation, roots and sampling")
    protocol: ProtocolRule = Field("auto", description="one of auto, legacy and modern")
    start: StartRule | None = Field(None, description=_START)
    idle_timeout: _Time | None = Field(None, description=_SECONDS)
    arguments: ArgumentRule | None = Field(None, description="one of strict and lenient")
    limits: dict[str, Any] = Field({}, description=_LIMITS)
    retries: int = Field(0, ge=0, le=10, strict=True, description="a whole number from 0 to 10")
    breaker: dict[str, Any] | None = Field(None, description='{"failures": 5, "seconds": 30}')
    eras: dict[str, Era] = Field({}, description='an object such as {"a_tool": "legacy"}, or "modern"')
    permissions: object = Field(None, description=_RULES)


class ToolsetSection(Entry):
    """The `toolset` section. Only this package reads it, so an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("mcp-toolset", min_length=1, description="a string that is not empty")
    deferred: bool = Field(False, description=_SWITCH)
    timeout: _Seconds | None = Field(None, description=_SECONDS)
    start_timeout: _Seconds | None = Field(None, description=_SECONDS)
    start: StartRule = Field("background", description=_START)
    idle_timeout: _Time | None = Field(None, description=_SECONDS)
    client_prefix: str = Field("", description="what the client puts before names, such as `mcp__tools__`")
    pins: ChangePolicy | None = Field(None, description=_CHANGES)
    new_tools: ChangePolicy | None = Field(None, description=_CHANGES)
    hidden_text: HiddenTextPolicy = Field("strip", description=_HIDDEN_TEXT)
    arguments: ArgumentRule = Field("lenient", description="one of strict and lenient")
    lock: str | None = Field(None, min_length=1, description="the path of a file, as a string")
    list_patience: _Seconds | None = Field(None, description=_SECONDS)
    limits: dict[str, Any] = Field({}, description=_LIMITS)
    permissions: object = Field(None, description=_RULES)
    audit: str | dict[str, Any] | None = Field(
        None, description='the path of a file, or an object such as {"path": "audit.jsonl"}'
    )
    auth: dict[str, Any] | None = Field(None, description="an object with `tokens` or `jwt`")
    code: bool | dict[str, Any] = Field(False, description='true, false or limits such as {"seconds": 5}')
    large_results: bool | int | dict[str, Any] = Field(
        False, description='true, a number of characters, or an object such as {"limit": 20000}'
    )


class LargeResultsEntry(Entry):
    """What is done with results that are too long for a model."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(20_000, gt=0, strict=True, description="a positive number of characters")
    preview: int | None = Field(None, gt=0, strict=True, description="a positive number of characters")
    memory: int = Field(64_000_000, gt=0, strict=True, description="a positive number of characters")
    lifetime: _Seconds = Field(3600.0, description=_SECONDS)


class CodeEntry(Entry):
    """The limits of code mode in the `toolset` section; `CodeMode` says what each means."""

    model_config = ConfigDict(extra="forbid")

    seconds: _Seconds | None = Field(None, description=_SECONDS)
    timeout: _Seconds | None = Field(None, description=_SECONDS)
    memory_mb: _Count | None = Field(None, description=_COUNT)
    calls: _Count | None = Field(None, description=_COUNT)
    suspensions: _Count | None = Field(None, description=_COUNT)
    parallel: _Count | None = Field(None, description=_COUNT)
    printed: _Count | None = Field(None, description=_COUNT)
    value: _Count | None = Field(None, description=_COUNT)
    workers: _Count | None = Field(None, description=_COUNT)


class AuditEntry(Entry):
    """The audit log of the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="the path of a file, as a string")
    max_bytes: int = Field(100_000_000, gt=0, description="a positive number of bytes")
    keep: int = Field(10, gt=0, description="how many full files are kept, at least 1")
    key: str | None = Field(None, min_length=16, description="at least 16 characters, such as `${AUDIT_KEY}`")


class InputEntry(Entry):
    """One of VS Code's `inputs`: only its id and default can be used without a user to ask."""

    id: str = Field(description=_TEXT)
    default: str | None = Field(None, description=_TEXT)


_Model = TypeVar("_Model", bound=BaseModel)


def validated(model: type[_Model], data: object, place: Place) -> _Model:
    """The model of `data`.

    Raises:
        ConfigError: One line for the first problem, with the number of the others; no values in it.
    """
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    # A key that is misspelt may be the one that is missing.
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        cause, mend = "unknown option", did_you_mean(key, known_keys(model)) or _one_of(known_keys(model))
    else:
        cause = first["msg"].removeprefix("Input ").lower()
        mend = f"write `{key}` as {_descriptions(model)[key]}"
    raise place.at(*first["loc"]).error(cause + more, mend)


def server_keys(keys: Iterable[str], place: Place) -> list[str]:
    """The unknown keys of a server's entry.

    Raises:
        ConfigError: a key is nearly one of ours, or of another client's.
    """
    known = {*known_keys(ServerEntry), *CLIENT_KEYS}
    unknown = unknown_keys(keys, known)
    for key in unknown:
        # Our keys come first: they protect the user.
        meant = synonym(key) or nearest(key, known_keys(ServerEntry)) or nearest(key, CLIENT_KEYS)
        if meant is not None:
            raise place.at(key).error("unknown key", f"did you mean `{meant}`?")
    return unknown


def known_keys(model: type[BaseModel]) -> list[str]:
    """The keys of the model as they are written in a file."""
    return list(_descriptions(model))


def _one_of(keys: Sequence[str]) -> str:
    return "use one of " + ", ".join(f"`{key}`" for key in keys)


def _descriptions(model: type[BaseModel]) -> dict[str, str]:
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}
