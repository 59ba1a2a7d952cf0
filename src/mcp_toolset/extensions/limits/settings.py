"""Settings of limits, for all tools and in the entry of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import ServerSettings, Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.config.rule_patterns import check_patterns
from mcp_toolset.config.tables import ANY, TABLE, Meaning, Table, key
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.limits.limits import NAMES, WHO, Limits, fault_of, unreached
from mcp_toolset.security.patterns import check_pattern

_COUNT: Final[Mapping[str, Any]] = {"type": "integer", "exclusiveMinimum": 0}
_RATE: Final[Mapping[str, Any]] = {"type": "string", "pattern": r"^[1-9][0-9]{0,8}/[a-z]+$"}
_BY_PATTERN: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": {"$ref": "#/$defs/limits"}}
_FEW: Final = 'an object such as {"*": {"rate": "60/min"}}'
_EXAMPLE: Final = {"*": {"rate": "60/min"}}


def _limit(meaning: str, example: Any, published: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """One kind of limit, whose value `fault_of` checks."""
    return key(ANY, "a limit", meaning=meaning, example=example, published=published, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOfPattern(Table):
    """Settings of one pattern in a file; `Limits` is what they become."""

    unknown: ClassVar = "forbid"

    rate: Any = _limit(
        "Calls per `s`, `min`, `hour` or `day`; the whole number may come at once (token bucket).",
        "60/min",
        _RATE,
    )
    calls: Any = _limit(
        "Calls per day, or for example `100/hour`; the count starts again with each day or hour.",
        1000,
        {"anyOf": [_COUNT, _RATE]},
    )
    concurrency: Any = _limit("Calls that run at the same time; further calls wait.", 4, _COUNT)
    timeout: Any = _limit("Seconds for one call.", 30, {"type": "number", "exclusiveMinimum": 0})
    result_bytes: Any = _limit("Bytes of one result in JSON; longer text is cut.", 100_000, _COUNT)
    callers: Any = _limit(
        "Limits for some callers; they are checked before the general ones.",
        [{"roles": ["guest"], "rate": "5/min"}],
        alias="for",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings(Settings):
    """The limits for the tools of all servers."""

    says: ClassVar = Meaning("[Limits](limits.md) on calls of all tools, by pattern.", _EXAMPLE)
    by_pattern: ClassVar = "limits"
    below_pattern: ClassVar = LimitsOfPattern
    adds: ClassVar = True
    protects: ClassVar = True
    tells: ClassVar = ("rate", "calls", "concurrency", "result_bytes")
    synonyms: ClassVar = {
        "": "ratelimit ratelimiting throttle quota",
        "calls": "maxcalls",
        "concurrency": "maxconcurrency",
        "result_bytes": "maxresultbytes",
    }

    limits: Mapping[str, Any] = key(TABLE, _FEW, {}, live=True)

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        check_patterns(((pattern, place.at(pattern)) for pattern in self.limits), servers)
        return replace(self, limits=_read(self.limits, place))

    def for_callers(self, place: Place) -> Iterator[tuple[Limits, Place]]:
        return _for_callers(self.limits, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOfServer(ServerSettings):
    """The limits in the entry of a server, for its tools."""

    limits: Mapping[str, Any] = key(
        TABLE,
        _FEW,
        {},
        meaning="[Limits](limits.md) on calls of the server's tools, by pattern.",
        example=_EXAMPLE,
        published=_BY_PATTERN,
    )

    def checked(self, place: Place, server: str) -> Self:
        at = place.at("limits")
        check_patterns(((pattern, at.at(pattern)) for pattern in self.limits), {server: ""})
        return replace(self, limits=_read(self.limits, at))

    def for_callers(self, place: Place) -> Iterator[tuple[Limits, Place]]:
        return _for_callers(self.limits, place.at("limits"))


def _for_callers(limits: Mapping[str, Limits], place: Place) -> Iterator[tuple[Limits, Place]]:
    for pattern, limit in limits.items():
        for number, some in enumerate(limit.callers):
            yield some, place.at(pattern, "for", number)


def _read(section: Mapping[str, Any], place: Place) -> Mapping[str, Limits]:
    read: dict[str, Limits] = {}
    for pattern, data in section.items():
        at = place.at(pattern)
        try:
            check_pattern(pattern, "limits")
        except DefinitionError as fault:
            raise at.error(str(fault).removeprefix("limits: "), "correct the pattern") from None
        read[pattern] = _limits(_table(data, at), at)
    return MappingProxyType(read)


def _limits(table: dict[str, Any], place: Place) -> Limits:
    some = table.get("for", [])
    if not isinstance(some, list):
        raise place.at("for").error("must be a list", 'write it as [{"roles": ["guest"], "rate": "5/min"}]')
    own = {key: value for key, value in table.items() if key != "for"}
    if all(value is None for value in table.values()):
        raise place.error("limits nothing", 'add a limit such as "rate": "60/min"')
    places = ((place.at("for", number), one) for number, one in enumerate(cast("list[object]", some)))
    if some == [] and "for" in table:
        raise place.at("for").error("is empty, so it limits nothing", "name callers in it, or remove it")
    callers = tuple(_of_callers(_table(one, at), at) for at, one in places)
    if (fault := unreached(callers)) is not None:
        number, before, key = fault
        raise place.at("for", number, key).error(
            f"never applies, as `for[{before}]` is for the same callers and has one", "write this one first"
        )
    return Limits(**_checked(own, place), callers=callers)


def _of_callers(table: dict[str, Any], place: Place) -> Limits:
    from mcp_toolset.config.sections import CallersEntry

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
    for name, value in table.items():
        if name not in NAMES:
            known = "use one of " + ", ".join(f"`{one}`" for one in (*NAMES, *more))
            raise place.at(name).error("unknown limit", did_you_mean(name, (*NAMES, *more)) or known)
        if value is not None and (fault := fault_of(name, value)):
            raise place.at(name).error("cannot be used", fault)
    return table


SETTINGS: Final = LimitsSettings
SERVER_SETTINGS: Final = LimitsOfServer
