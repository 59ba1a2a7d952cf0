"""The tables of the parts that few configurations have; each is loaded for a file that has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as standard
from ipaddress import ip_network
from typing import Any, ClassVar, Final, Literal, NoReturn, cast

from pydantic_core import PydanticCustomError, SchemaValidator, ValidationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config import tables
from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.security.patterns import (
    HiddenRule,
    Permissions,
    Section,
    fault_of,
    fault_of_exact,
    fault_of_principal,
    hidden_rules,
    plain_name,
    rule_hidden_everywhere,
)

_Key = tuple[str | None, str | None, str | None]
_Names = tuple[str, ...] | None
_KEY: Final[tables.Schema] = {
    "type": "tuple",
    "items_schema": [{"type": "nullable", "schema": tables.TEXT}] * 3,
}
_SOME: Final[tables.Schema] = {**tables.TEXTS, "min_length": 1}
_COUNT: Final = "a positive whole number"


class Strict(tables.Table):
    """A part in which an unknown key is a mistake."""

    __slots__ = ()

    unknown: ClassVar = "forbid"


@standard(frozen=True, kw_only=True)
class CallersEntry(Strict):
    """The callers that a part of a configuration is for."""

    principals: list[str | _Key] | None = tables.key(
        {"type": "list", "items_schema": tables.any_of(tables.TEXT, _KEY), "min_length": 1},
        tables.LIST_OF_TEXTS + ", the names of callers, or of keys: [client, issuer, subject]",
        meaning="Names or patterns of callers, or keys: `[client, issuer, subject]`, with `null` for a "
        "missing part.",
        example=["ci", "*@example.com", ["desktop", "https://idp.example.com", "ann"]],
    )
    roles: list[str] | None = tables.key(
        _SOME, tables.LIST_OF_TEXTS, meaning="Callers with one of these roles.", example=["intern"]
    )
    scopes: list[str] | None = tables.key(
        _SOME, tables.LIST_OF_TEXTS, meaning="Callers with one of these scopes.", example=["tools:read"]
    )

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
        return SchemaValidator(cast("Any", _KEY)).validate_json(text)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry(Strict):
    """The log of a process that serves, in the `toolset` section."""

    folder: str | None = tables.key(
        {**tables.TEXT, "min_length": 1},
        "the path of a folder, as a string",
        meaning="The folder of the log, in that of the configuration; by default the user's folder for logs.",
        example="logs",
    )
    level: Literal["debug", "info", "warning", "error"] = tables.key(
        tables.one_of("debug", "info", "warning", "error"),
        "one of debug, info, warning and error",
        "info",
        meaning="The least level of the lines that are kept.",
        example="debug",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEntry(Strict):
    """Conditions for the server to be ready, in the `toolset` section."""

    servers: list[str] = tables.key(
        tables.TEXTS,
        tables.LIST_OF_TEXTS + ", the names of servers or patterns of names",
        [],
        meaning="Servers that must be up, by their names or patterns of names.",
        example=["github", "erp-*"],
    )
    store: bool = tables.key(
        tables.BOOL,
        "true or false",
        False,
        meaning="Whether the [store that replicas share](replicas.md) must answer.",
        example=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressEntry(Strict):
    """The hosts to which mounted servers may send the bridge, in the `toolset` section."""

    allow: list[str] = tables.key(
        tables.TEXTS,
        tables.LIST_OF_TEXTS + ", of hosts and networks",
        required=True,
        meaning="Hosts, all hosts below one (`*.corp`), IP addresses and networks.",
        example=["login.corp", "10.0.0.0/8"],
    )


def _network(value: Any) -> str:
    try:
        return str(ip_network(value))
    except (ValueError, TypeError):
        raise PydanticCustomError("ip_any_network", "value is not a valid IPv4 or IPv6 network") from None


_NETWORK: Final[tables.Schema] = tables.prepared(_network, tables.ANY)


def _count(meaning: str, example: int) -> Any:
    return tables.key(tables.COUNT, _COUNT, meaning=meaning, example=example)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEntry(Strict):
    """Limits for clients over HTTP, in the `toolset` section; `HttpLimits` says what each means."""

    max_sessions: int | None = _count("Legacy sessions that may be open; the default is 2,000.", 20_000)
    max_sessions_per_peer: int | None = _count("The same for one address; the default is 500.", 5_000)
    max_unread_bytes: int | None = _count(
        "Bytes of answers that clients have not read; the default is 256 MiB.", 536_870_912
    )
    max_unread_bytes_per_peer: int | None = _count(
        "The same for one address; the default is 40 MiB.", 83_886_080
    )
    max_header_lines: int | None = _count("Header lines of one request; the default is 200.", 100)
    max_replay_bytes: int | None = _count(
        "Bytes of events that are kept so that broken streams can be resumed; the default is 64 MiB.",
        33_554_432,
    )
    max_replay_bytes_per_session: int | None = _count(
        "The same for one session; the default is 16 MiB.", 4_194_304
    )
    trusted_proxies: list[str] = tables.key(
        {"type": "list", "items_schema": _NETWORK},
        tables.LIST_OF_TEXTS + ', IP addresses or networks such as "10.0.0.0/8"',
        [],
        meaning="Addresses or networks of proxies whose `X-Forwarded-For` says the client's address.",
        example=["10.0.0.0/8"],
        published={"type": "array", "items": {"format": "ipvanynetwork", "type": "string"}},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEntry(tables.Table):
    """One of VS Code's `inputs`: only its id and default can be used without a user to ask."""

    id: str = tables.key(
        tables.TEXT, "a string", required=True, meaning="The name in `${input:…}`.", example="api-key"
    )
    default: str | None = tables.key(
        tables.TEXT, "a string", meaning="The value if the variable `MCP_INPUT_…` is not set.", example="none"
    )


_PATTERNS = tables.LIST_OF_TEXTS + " such as `github/*`, `*_delete` or `destructive:*`"


@standard(frozen=True, kw_only=True)
class SectionPermissions(Strict):
    """The rules of one server, for every caller."""

    allow: list[str] | None = tables.key(
        tables.TEXTS,
        _PATTERNS,
        meaning="Patterns of the tools that exist for a caller; without the key, every tool that is not "
        "denied.",
        example=["readOnly:*"],
    )
    ask: list[str] | None = tables.key(
        tables.TEXTS,
        _PATTERNS,
        meaning="Patterns of the tools that need an [approval](approvals.md).",
        example=["destructive:*"],
    )
    deny: list[str] | None = tables.key(
        tables.TEXTS,
        _PATTERNS,
        meaning="Patterns of the tools that do not exist for a caller.",
        example=["github/*_delete"],
    )


@standard(frozen=True, kw_only=True)
class CallersPermissions(SectionPermissions, CallersEntry):
    """The rules for some callers."""


@standard(frozen=True, kw_only=True)
class GeneralPermissions(SectionPermissions):
    """The rules for all servers and callers, and those for some callers."""

    callers: list[object] | None = tables.key(
        {"type": "list", "items_schema": {"type": "any"}},
        "a list of objects",
        alias="for",
        meaning="Rules for some callers; they are checked before the general rules.",
        example=[{"roles": ["intern"], "deny": ["crm/*"]}],
    )


def permissions_at(data: object, place: Place) -> Permissions:
    """The `permissions` of the `toolset` section; those of servers are added by `HubConfig`."""
    if data is None:
        return Permissions()
    entry = validated(GeneralPermissions, data, place)
    if entry.callers == []:
        raise place.at("for").error("is empty, so it protects nothing", "name callers in it, or remove it")
    callers = [_callers_at(one, place.at("for", number)) for number, one in enumerate(entry.callers or ())]
    return Permissions(_section(entry, place), callers=tuple(callers))


def check_order(
    rules: Permissions, servers: Mapping[str, tuple[Section | None, Place]], place: Place
) -> None:
    """Refuse a rule whose tools are allowed before: by the entries of their servers, or for some callers."""
    stated = {server: section for server, (section, _) in servers.items() if section is not None}
    places = {at.path: at for at in (place, *(at for _, at in servers.values()))}
    places |= {one.place: place.at("for", number) for number, one in enumerate(rules.callers)}
    for found, after, before in hidden_rules(replace(rules, servers=stated)):
        near = f"{place.path}." if after in rules.callers else ""
        _refuse(found, places[after.place], f"`{before.place.removeprefix(near)}.allow`")
    if len(stated) == len(servers) and (found := rule_hidden_everywhere(rules.general, stated)) is not None:
        _refuse(found, place, ", ".join(f"`{section.place}.allow`" for section in stated.values()))


def _refuse(found: HiddenRule, place: Place, told: str) -> NoReturn:
    """Refuse a rule that never applies, because the section that is asked before allows what it is about."""
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
    for kind, listed in (("ask", entry.ask), ("deny", entry.deny)):
        if listed == []:
            raise place.at(kind).error("is empty, so it protects nothing", "name tools in it, or remove it")
    for kind, patterns in (("allow", entry.allow), ("ask", entry.ask), ("deny", entry.deny)):
        for number, pattern in enumerate(patterns or ()):
            if fault := fault_of(pattern):
                raise place.at(kind, number).error(*fault)
    allow = None if entry.allow is None else tuple(entry.allow)
    return Section(place.path, allow, tuple(entry.ask or ()), tuple(entry.deny or ()), *of_callers)
