"""pydantic models of the parts that few configurations have; each is loaded for a file that has it.

The descriptions of the fields are the remedies in the errors of `entries.validated`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from mcp_toolset.config.entries import LIST_OF_TEXTS, validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.security.policy.patterns import (
    fault_of,
    fault_of_exact,
    fault_of_principal,
    hidden_rule,
    is_for_all_of,
    plain_name,
)
from mcp_toolset.security.policy.sections import Permissions, Section

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


class LogEntry(Entry):
    """The log of a process that serves, in the `toolset` section."""

    model_config = ConfigDict(extra="forbid")

    folder: str | None = Field(None, min_length=1, description="the path of a folder, as a string")
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="one of debug, info, warning and error"
    )


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


class InputEntry(Entry):
    """One of VS Code's `inputs`: only its id and default can be used without a user to ask."""

    id: str = Field(description=_TEXT)
    default: str | None = Field(None, description=_TEXT)


_PATTERNS = LIST_OF_TEXTS + " such as `github/*`, `*_delete` or `destructive:*`"


class SectionPermissions(Entry):
    """The rules of one server, for every caller."""

    model_config = ConfigDict(extra="forbid")

    allow: list[str] | None = Field(None, description=_PATTERNS)
    ask: list[str] = Field([], description=_PATTERNS)
    deny: list[str] = Field([], description=_PATTERNS)


class CallersPermissions(SectionPermissions, CallersEntry):
    """The rules for some callers."""


class GeneralPermissions(SectionPermissions):
    """The rules for all servers and callers, and those for some callers."""

    callers: list[object] = Field([], alias="for", description="a list of objects")


def permissions_at(data: object, place: Place) -> Permissions:
    """The `permissions` of the `toolset` section; those of servers are added by `HubConfig`."""
    if data is None:
        return Permissions()
    entry = validated(GeneralPermissions, data, place)
    if "callers" in entry.model_fields_set and not entry.callers:
        raise place.at("for").error("is empty, so it protects nothing", "name callers in it, or remove it")
    callers = [_callers_at(one, place.at("for", number)) for number, one in enumerate(entry.callers)]
    for number, after in enumerate(callers):
        for at, before in enumerate(callers[:number]):
            if is_for_all_of(before, after):
                _check_reached(after, before, place.at("for", number), f"`for[{at}].allow`")
    return Permissions(_section(entry, place), callers=tuple(callers))


def check_order(rules: Permissions, servers: Mapping[str, Section], place: Place) -> None:
    """Refuse a general rule for one server whose entry allows what the rule is about: it decides before."""
    for server, section in servers.items():
        _check_reached(rules.general, section, place, f"`{section.place}.allow`", server)


def _check_reached(after: Section, before: Section, place: Place, told: str, server: str = "") -> None:
    """Refuse a rule that never applies, because the section that is asked before allows what it is about."""
    if (found := hidden_rule(after, before, server)) is not None:
        raise place.at(found.kind, found.number).error(
            f"never applies, as {told} is asked before it and has `{found.wide}`",
            "write it into that section, or in front of it",
        )


def section_at(data: object, place: Place) -> Section | None:
    """The `permissions` of one server's entry; raises as `permissions_at` does."""
    return None if data is None else _section(validated(SectionPermissions, data, place), place)


def _callers_at(data: object, place: Place) -> Section:
    entry = validated(CallersPermissions, data, place)
    who = entry.who(place)
    if entry.allow is None and not entry.ask and not entry.deny:
        raise place.error("has no rules", "add `allow`, `ask` or `deny`")
    return _section(entry, place, *who)


def _section(entry: SectionPermissions, place: Place, *of_callers: tuple[str, ...] | None) -> Section:
    for key, listed in (("ask", entry.ask), ("deny", entry.deny)):
        if key in entry.model_fields_set and not listed:
            raise place.at(key).error("is empty, so it protects nothing", "name tools in it, or remove it")
    for kind, patterns in (("allow", entry.allow or ()), ("ask", entry.ask), ("deny", entry.deny)):
        for number, pattern in enumerate(patterns):
            if fault := fault_of(pattern):
                raise place.at(kind, number).error(*fault)
    allow = None if entry.allow is None else tuple(entry.allow)
    return Section(place.path, allow, tuple(entry.ask), tuple(entry.deny), *of_callers)
