"""`"limits"` and `"breaker"` of a configuration: what callers may use of tools, and when a server rests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_toolset._index import index
from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.sections import KINDS

if TYPE_CHECKING:
    from mcp_toolset.security.policy.limits import Limits


_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+")


def breaker_in(data: Mapping[str, Any] | None, place: Place) -> tuple[int, float] | None:
    if data is None:
        return None
    # Imported here, because few configurations have one.
    from mcp_toolset.config.sections import BreakerEntry

    entry = validated(BreakerEntry, data, place.at("breaker"))
    return entry.failures, entry.seconds


def check_servers(
    place: Place,
    servers: Collection[str],
    permissions: object,
    *,
    limits: object,
    prefixes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a rule for the tools of a server that is not there; wrong types are refused elsewhere.

    Args:
        place: What has the rules.
        servers: The names of the servers.
        permissions: Rules of who may use what.
        limits: Limits by pattern.
        prefixes: The servers by the prefixes of their tools, as far as they are known.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    rules = [*_patterns(permissions, place.at("permissions"))]
    at = place.at("limits")
    stated = cast("dict[str, Any]", limits) if isinstance(limits, dict) else {}
    rules += [(one, at.at(one)) for one in stated]
    check_patterns(rules, servers, prefixes)


def check_patterns(
    patterns: Iterable[tuple[str, Place]], servers: Collection[str], prefixes: Mapping[str, str]
) -> None:
    """Refuse a pattern, each with its place, for the tools of a server that is not there.

    Args:
        patterns: The patterns with their places.
        servers: The names of the servers.
        prefixes: The servers by the prefixes of their tools, as far as they are known.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    for pattern, at in patterns:
        # Imported here, because few configurations have rules.
        from mcp_toolset.security.policy.patterns import fault_of, fault_of_public, fault_of_server

        fault = fault_of_server(pattern, servers) or fault_of_public(pattern, prefixes)
        # What is wrong with a pattern by itself is told where it is read.
        if fault and not fault_of(pattern):
            raise at.error(*fault)


def check_own(entries: Mapping[str, object], section: Place) -> None:
    """Refuse a rule in a server's entry that is for the tools of another server of the file.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    for name, entry in entries.items():
        others, place = {*entries} - {name}, section.at(name)
        table = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        rules = [*_patterns(table.get("permissions"), place.at("permissions"))]
        for key in ("limits", *index().SERVER_KEYS):
            said = table.get(key)
            named = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            rules += [(one, place.at(key, one)) for one in named]
        for key in ("include", "exclude", "includeTools", "excludeTools", "disabledTools", "disabled_tools"):
            said = table.get(key)
            rules += [
                (one, place.at(key, at))
                for at, one in enumerate(cast("list[Any]", said) if isinstance(said, list) else [])
                if isinstance(one, str)
            ]
        for pattern, at in rules:
            from mcp_toolset.security.policy.patterns import fault_of, fault_of_server, split_hint

            own = fault_of_server(pattern, [name])
            if own and not fault_of(pattern) and "/" in pattern and not fault_of_server(pattern, others):
                other = next(one for one in others if not fault_of_server(pattern, [one]))
                raise at.error(
                    "is a rule for another server, which would not apply",
                    f"move `{split_hint(pattern)[1]}` into the entry of `{other}`, or into `toolset`",
                )


def prefixes_of(entries: Mapping[str, object]) -> Mapping[str, str]:
    """The servers by the prefixes of their tools; those whose name cannot be a prefix are left out."""
    said = (
        (name, cast("dict[str, object]", one).get("prefix") if isinstance(one, dict) else None)
        for name, one in entries.items()
    )
    found = ((name if prefix is None else prefix, name) for name, prefix in said)
    return {prefix: name for prefix, name in found if isinstance(prefix, str) and _PREFIX.fullmatch(prefix)}


def _patterns(said: object, place: Place) -> Iterator[tuple[str, Place]]:
    """The patterns of permissions, each with its place."""
    table = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    for key, listed in table.items():
        for number, one in enumerate(cast("list[object]", listed) if isinstance(listed, list) else []):
            if key == "for":
                yield from _patterns(one, place.at(key, number))
            elif key in KINDS and isinstance(one, str):
                yield one, place.at(key, number)


def limits_in(section: Mapping[str, Any], place: Place) -> Mapping[str, Limits]:
    """The limits of a section, by pattern; `place` is that of the section's holder."""
    if not section:
        return MappingProxyType({})
    # Imported here, because few configurations have limits.
    from mcp_toolset.security.policy.patterns import check_pattern

    found: dict[str, Limits] = {}
    for pattern, data in section.items():
        at = place.at("limits", pattern)
        try:
            check_pattern(pattern, "limits")
        except DefinitionError as fault:
            raise at.error(str(fault).removeprefix("limits: "), "correct the pattern") from None
        found[pattern] = _limits(_table(data, at), at)
    return MappingProxyType(found)


def _limits(table: dict[str, Any], place: Place) -> Limits:
    from mcp_toolset.security.policy.limits import Limits, unreached

    some = table.get("for", [])
    if not isinstance(some, list):
        raise place.at("for").error("must be a list", 'write it as [{"roles": ["guest"], "rate": "5/min"}]')
    own = {key: value for key, value in table.items() if key != "for"}
    if all(value is None for value in table.values()):
        raise place.error("limits nothing", 'add a limit such as "rate": "60/min"')
    places = ((place.at("for", number), one) for number, one in enumerate(cast("list[object]", some)))
    if some == [] and "for" in table:
        raise place.at("for").error("is empty, so it limits nothing", "name callers in it, or remove it")
    callers = tuple(_for_callers(_table(one, at), at) for at, one in places)
    if (found := unreached(callers)) is not None:
        raise place.at("for", found.number, found.key).error(
            f"never applies, as `for[{found.before}]` is for the same callers and has one",
            "write this one first",
        )
    return Limits(**_checked(own, place), callers=callers)


def _for_callers(table: dict[str, Any], place: Place) -> Limits:
    from mcp_toolset.config.sections import CallersEntry
    from mcp_toolset.security.policy.limits import WHO, Limits

    limits = _checked({key: value for key, value in table.items() if key not in WHO}, place, WHO)
    callers = validated(CallersEntry, {key: value for key, value in table.items() if key in WHO}, place)
    principals, roles, scopes = callers.who(place)
    if all(value is None for value in limits.values()):
        raise place.error("limits nothing", 'add a limit such as "rate": "60/min"')
    return Limits(**limits, principals=principals, roles=roles, scopes=scopes)


def _table(data: object, place: Place) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise place.error("must be an object", 'write it as {"rate": "60/min"}')
    return cast("dict[str, Any]", data)


def _checked(table: dict[str, Any], place: Place, more: tuple[str, ...] = ("for",)) -> dict[str, Any]:
    from mcp_toolset.security.policy.limits import NAMES, fault_of

    for key, value in table.items():
        if key not in NAMES:
            known = "use one of " + ", ".join(f"`{name}`" for name in (*NAMES, *more))
            raise place.at(key).error("unknown limit", did_you_mean(key, (*NAMES, *more)) or known)
        if value is not None and (fault := fault_of(key, value)):
            raise place.at(key).error("cannot be used", fault)
    return table
