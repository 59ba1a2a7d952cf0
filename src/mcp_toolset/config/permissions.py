"""The `permissions` of a configuration: for all servers and callers, for some callers, and of one server."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, Field

from mcp_toolset.config.entries import LIST_OF_TEXTS, validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.sections import CallersEntry, Entry
from mcp_toolset.security.policy.patterns import Permissions, Section, fault_of, hidden_rule, is_for_all_of

__all__ = [
    "CallersPermissions",
    "GeneralPermissions",
    "SectionPermissions",
    "check_order",
    "permissions_at",
    "section_at",
]

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
    """Refuse a general rule for one server whose entry allows what the rule is about: it decides before.

    Raises:
        ConfigError: with the place of the rule.
    """
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
