"""`"limits"` and `"breaker"` of a configuration: what callers may use of tools, and when a server rests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.sections import KINDS

if TYPE_CHECKING:
    from mcp_toolset.security.policy.limits import Limits


def breaker_in(data: Mapping[str, Any] | None, place: Place) -> tuple[int, float] | None:
    if data is None:
        return None
    # Imported here, because few configurations have one.
    from mcp_toolset.config.sections import BreakerEntry

    entry = validated(BreakerEntry, data, place.at("breaker"))
    return entry.failures, entry.seconds


def check_servers(
    place: Place, servers: Collection[str], permissions: object, *, limits: object, journal: object
) -> None:
    """Refuse a rule for the tools of a server that is not there; wrong types are refused elsewhere.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    rules = [*_patterns(permissions, place.at("permissions"))]
    for table, at in ((limits, place.at("limits")), (journal, place.at("journal"))):
        rules += [
            (one, at.at(one)) for one in (cast("dict[str, Any]", table) if isinstance(table, dict) else {})
        ]
    for pattern, at in rules:
        if "/" in pattern:
            # Imported here, because few configurations have such a rule.
            from mcp_toolset.security.policy.patterns import fault_of_server

            if fault := fault_of_server(pattern, servers):
                raise at.error(*fault)


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
    from mcp_toolset.security.policy.limits import Limits

    some = table.get("for", [])
    if not isinstance(some, list):
        raise place.at("for").error("must be a list", 'write it as [{"roles": ["guest"], "rate": "5/min"}]')
    own = {key: value for key, value in table.items() if key != "for"}
    if all(value is None for value in table.values()):
        raise place.error("limits nothing", 'add a limit such as "rate": "60/min"')
    places = ((place.at("for", number), one) for number, one in enumerate(cast("list[object]", some)))
    callers = tuple(_for_callers(_table(one, at), at) for at, one in places)
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
