"""pydantic models of the parts that few configurations have; each is loaded for a file that has it.

The descriptions of the fields are the remedies in the errors of `entries.validated`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from mcp_toolset.config.entries import LIST_OF_TEXTS
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.rules import JournalMode
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.patterns import (
    check_pattern,
    fault_of,
    fault_of_exact,
    fault_of_principal,
    plain_name,
)

__all__ = [
    "AuditEntry",
    "BreakerEntry",
    "CallersEntry",
    "CodeEntry",
    "EgressEntry",
    "Entry",
    "HttpEntry",
    "InputEntry",
    "JournalEntry",
    "LearningEntry",
    "LargeResultsEntry",
    "LogEntry",
    "ReadyEntry",
    "TelemetryEntry",
    "exact_names",
    "modes_in",
    "places_in",
]

_Seconds = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
_Some = Annotated[list[str], Field(min_length=1)]
_Key = tuple[str | None, str | None, str | None]
_Names = tuple[str, ...] | None
_TEXT = "a string"
_SECONDS = "a positive number of seconds"
_Count = Annotated[int, Field(gt=0, strict=True)]
_COUNT = "a positive whole number"


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

    principals: Annotated[list[str | _Key], Field(min_length=1)] | None = Field(
        None, description=LIST_OF_TEXTS + ", the names of callers, or of keys: [client, issuer, subject]"
    )
    roles: _Some | None = Field(None, description=LIST_OF_TEXTS)
    scopes: _Some | None = Field(None, description=LIST_OF_TEXTS)

    def who(self, place: Place) -> tuple[_Names, _Names, _Names]:
        """The names, roles and scopes."""
        if self.principals is None and self.roles is None and self.scopes is None:
            raise place.error("does not say for which callers it is", "add `principals`, `roles` or `scopes`")
        return (
            _keyed(self.principals, place.at("principals")),
            exact_names(self.roles, place.at("roles")),
            exact_names(self.scopes, place.at("scopes")),
        )


def _keyed(names: Sequence[str | _Key] | None, place: Place) -> _Names:
    """The names; a key becomes its text, as `Identity.key` has it."""
    found = list[str]()
    for number, name in enumerate(names or ()):
        if fault := fault_of_principal(name) if isinstance(name, str) else None:
            raise place.at(number).error(*fault)
        if isinstance(name, str) and not name.startswith("["):
            found.append(name)
            continue
        key = name if isinstance(name, tuple) else _decoded(name)
        if key is None or not (key[0] or key[2]):
            raise place.at(number).error(
                "is no key of a caller", 'write it as ["client", "issuer", "subject"]'
            )
        found.append(json.dumps(key))
    return None if names is None else tuple(found)


def _decoded(text: str) -> _Key | None:
    """The key that a text has; `None` if it has none."""
    try:
        return TypeAdapter[_Key](_Key).validate_json(text)
    except ValidationError:
        return None


def exact_names(names: Sequence[str] | None, place: Place) -> _Names:
    """Roles or scopes, which are compared exactly."""
    for number, one in enumerate(names or ()):
        if fault := fault_of_exact(one):
            raise place.at(number).error(*fault)
        if " " in one and place.steps[-1] != "roles":
            raise place.at(number).error("is more than one scope", "write each as an item")
    return None if names is None else tuple(map(plain_name, names))


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


class LearningEntry(Entry):
    """What search learns from use, in the `toolset` section; `SearchLearning` says what each key means."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(None, min_length=1, description="the path of a file, as a string")
    most: float = Field(0.15, gt=0, lt=0.2, description="a number above 0 and below 0.2")
    half_life: float = Field(30 * 86_400, gt=0, allow_inf_nan=False, description=_SECONDS)
    tenants: int = Field(100, gt=0, strict=True, description=_COUNT)
    pairs: int = Field(2_000, gt=0, le=5_000, strict=True, description="a whole number from 1 to 5000")


class LogEntry(Entry):
    """The log of a process that serves, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    folder: str | None = Field(None, min_length=1, description="the path of a folder, as a string")
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="one of debug, info, warning and error"
    )


class JournalEntry(Entry):
    """The journal of calls, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(None, min_length=1, description="the path of a file, as a string")
    store: str | None = Field(None, min_length=1, description="a URL, as a string")
    lifetime: float = Field(7 * 86_400, gt=0, strict=True, allow_inf_nan=False, description=_SECONDS)
    wait: float = Field(
        30.0, ge=0, strict=True, allow_inf_nan=False, description="a number of seconds, 0 or more"
    )
    result_bytes: int = Field(1_000_000, gt=0, strict=True, description="a positive number of bytes")
    read_only: bool = Field(False, description="true or false")
    tools: dict[str, Any] = Field({}, description='an object such as {"charge_*": "once"}')


class TelemetryEntry(Entry):
    """Where metrics and traces go, in the `toolset` section; `Telemetry` says what each key means."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=False)

    prometheus: bool = Field(False, strict=True, description="true or false")
    otlp: bool | str = Field(False, description="true, false or the URL of a collector")
    spans: float = Field(10, ge=0, allow_inf_nan=False, description="a number of requests per second")
    every: float | None = Field(None, gt=0, allow_inf_nan=False, description=_SECONDS)
    public: bool = Field(False, strict=True, description="true or false")


class SuspendedEntry(Entry):
    """Where calls that wait for answers are kept, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(None, min_length=1, description="the path of a file, as a string")
    patience: float = Field(86_400, gt=0, strict=True, allow_inf_nan=False, description=_SECONDS)
    grants: float | None = Field(None, gt=0, allow_inf_nan=False, description=_SECONDS)


class ReadyEntry(Entry):
    """What must work for the server to be ready, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    servers: list[str] = Field([], description=LIST_OF_TEXTS + ", the names of servers or patterns of names")
    store: bool = Field(False, description="true or false")


class EgressEntry(Entry):
    """Where mounted servers may send the bridge, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    allow: list[str] = Field(description=LIST_OF_TEXTS + ", of hosts and networks")


class HttpEntry(Entry):
    """How much is kept for clients over HTTP, in the `toolset` section; `HttpLimits` says what each means."""

    model_config = ConfigDict(extra="forbid")

    sessions: _Count | None = Field(None, description=_COUNT)
    sessions_per_peer: _Count | None = Field(None, description=_COUNT)
    unread: _Count | None = Field(None, description=_COUNT)
    unread_per_peer: _Count | None = Field(None, description=_COUNT)
    header_lines: _Count | None = Field(None, description=_COUNT)
    kept: _Count | None = Field(None, description=_COUNT)
    kept_per_session: _Count | None = Field(None, description=_COUNT)
    trusted_proxies: list[IPvAnyNetwork] = Field(
        [], description=LIST_OF_TEXTS + ', IP addresses or networks such as "10.0.0.0/8"'
    )


class AuditEntry(Entry):
    """The audit log of the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, description="the path of a file, as a string")
    max_bytes: int = Field(100_000_000, gt=0, strict=True, description="a positive number of bytes")
    keep: int = Field(10, gt=0, strict=True, description="how many full files are kept, at least 1")
    key: str | None = Field(None, min_length=16, description="at least 16 characters, such as `${AUDIT_KEY}`")


class InputEntry(Entry):
    """One of VS Code's `inputs`: only its id and default can be used without a user to ask."""

    id: str = Field(description=_TEXT)
    default: str | None = Field(None, description=_TEXT)


class BreakerEntry(BaseModel):
    """When a server is not called any more, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    failures: int = Field(5, gt=0, strict=True, description="a positive whole number")
    seconds: float = Field(
        30, gt=0, strict=True, allow_inf_nan=False, description="a positive number of seconds"
    )


def modes_in(section: Mapping[str, object], place: Place) -> Mapping[str, JournalMode]:
    """The modes of a section, by pattern."""
    known = get_args(JournalMode)
    for pattern, mode in section.items():
        at = place.at(pattern)
        try:
            check_pattern(pattern, "journal")
        except DefinitionError as fault:
            raise at.error(str(fault).removeprefix("journal: "), "correct the pattern") from None
        if mode not in known:
            raise at.error("cannot be used", "write one of " + ", ".join(f'"{one}"' for one in known))
    return MappingProxyType(dict(cast("Mapping[str, JournalMode]", section)))


def places_in(said: str | Mapping[str, str], place: Place) -> Mapping[str, str]:
    """Where tools are told the key of a call, by pattern."""
    places = {"*": said} if isinstance(said, str) else said
    for pattern, one in places.items():
        where, _, name = one.partition(".")
        if fault := fault_of(pattern):
            raise place.at(pattern).error(*fault)
        if where not in ("_meta", "arguments") or not name:
            at = place if isinstance(said, str) else place.at(pattern)
            raise at.error("cannot be used", 'write "_meta.NAME" or "arguments.NAME"')
    return MappingProxyType(dict(places))
