"""`Limits`: what callers may use of tools, as data; `LimitTable`: which limits hold for one tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import inf
from typing import Any, Final, NamedTuple, cast

from mcp_toolset._records import dataclass
from mcp_toolset._rule import Rule, take
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security import patterns

UNITS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
}
"""Lengths of the units of a rate, in seconds."""

_PER: Final = re.compile(r"([1-9][0-9]{0,8})/([a-z]+)")

Group = tuple[int, ...]
"""The limits in a table that apply to one caller, by their numbers."""


@dataclass(frozen=True, slots=True)
class Limits(Rule):
    """The limits of one pattern. Each caller has a counter, which counts all tools of the pattern together.

    Attributes:
        rate: Calls per time, such as `"60/min"`: at once or spread out.
        calls: Calls per day, or as in `"100/hour"`; counted anew when the day or the hour begins, in UTC.
        concurrency: Calls that run at the same time; others wait for as long as `timeout`.
        timeout: Seconds for one call.
        result_bytes: Bytes of one result in JSON; longer text is cut.
        principals: Names, patterns of names, or keys of the callers with these limits; `None` for all.
        roles: The limits apply to callers with one of these roles.
        scopes: The limits apply to callers with one of these scopes.
        callers: Limits for some callers, checked in order before these limits.

    Raises:
        DefinitionError: a value cannot be used; the message names the value and the possible forms.
    """

    rate: str | None = None
    calls: str | int | None = None
    concurrency: int | None = None
    timeout: float | None = None
    result_bytes: int | None = None
    principals: Sequence[str] | None = None
    roles: Sequence[str] | None = None
    scopes: Sequence[str] | None = None
    callers: Sequence[Limits] = ()

    def __post_init__(self) -> None:
        """Check every value."""
        for key, value in self.given():
            if fault := fault_of(key, value):
                raise DefinitionError(f"Limits({key}={value!r}): {fault}")
        for key in WHO:
            if (names := getattr(self, key)) is not None:
                object.__setattr__(self, key, _names(key, names))
        if isinstance(cast("object", self.callers), Limits | str):
            raise DefinitionError(f"Limits(callers=…) takes a list of Limits, not {self.callers!r}")
        object.__setattr__(self, "callers", tuple(self.callers))
        take(*self.callers)
        for one in self.callers:
            if one.callers or not one.is_for_some or not any(one.given()):
                raise DefinitionError(
                    "Limits(callers=…): each says for whom it is (principals, roles or scopes), and limits "
                    "something; it has no `callers` itself"
                )

        if (found := unreached(self.callers)) is not None:
            number, before, key = found
            raise DefinitionError(
                f"Limits(callers=…): the {key} of number {number} never applies, as number {before} is for "
                "the same callers and has one: write the wider one last"
            )

    def given(self) -> Iterator[tuple[str, Any]]:
        """The limits that are set, by name."""
        for key in NAMES:
            if (value := getattr(self, key)) is not None:
                yield key, value

    @property
    def is_for_some(self) -> bool:
        """True if the limits apply to some callers only."""
        return any(one is not None for one in (self.principals, self.roles, self.scopes))


def unreached(callers: Sequence[Limits]) -> tuple[int, int, str] | None:
    """The first limit of some callers that never applies, as limits before it are for all of them.

    Returns its number, the number of the one before, and its key.
    """
    for number, after in enumerate(callers):
        for at, before in enumerate(callers[:number]):
            both = dict(before.given()).keys() & dict(after.given()).keys()
            if both and patterns.is_for_all_of(before, after):
                return number, at, min(both)
    return None


NAMES: Final = ("rate", "calls", "concurrency", "timeout", "result_bytes")
"""From the outermost on: a call that waits for others has been counted, and is not timed yet."""
WHO: Final = ("principals", "roles", "scopes")


def _names(key: str, names: object) -> tuple[str, ...]:
    every = () if isinstance(names, str) else tuple(cast("Sequence[object]", names))
    if not every or not all(isinstance(one, str) for one in every):
        raise DefinitionError(f"Limits({key}={names!r}): write a list of names")
    return cast("tuple[str, ...]", every)


def fault_of(key: str, value: object) -> str:
    """The form to write in place of a value that cannot be used; empty for one that can."""
    if isinstance(value, str) and key in ("rate", "calls"):
        return _fault_of_rate(value)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if key == "timeout":
        return "" if 0 < number < inf else "write a positive number of seconds"
    if key == "rate":
        return "write a text such as `60/min`"
    return "" if number > 0 and isinstance(number, int) else "write a positive whole number"


def _fault_of_rate(text: str) -> str:
    number, _, unit = text.partition("/")
    found = _PER.fullmatch(text)
    if found is not None and found[2] in UNITS:
        return ""
    close = get_close_matches(unit, UNITS, n=1, cutoff=0.5)
    if close and _PER.fullmatch(f"{number}/{close[0]}"):
        return f"did you mean `{number}/{close[0]}`?"
    return "write a positive whole number per s, min, hour or day, such as `60/min`"


def per(value: str | int) -> tuple[int, float]:
    """A checked rate as calls and seconds; a plain number is per day."""
    number, _, unit = str(value).partition("/")
    return int(number), UNITS[unit or "day"]


class Limit(NamedTuple):
    """One limit of a tool."""

    place: str  # the pattern that it is from; all tools of the pattern share it
    key: str  # which limit, such as `rate`
    value: Any  # its value


class _ToolLimits(NamedTuple):
    """Limits of one pattern, and whom they are for."""

    precision: tuple[bool, int, bool, bool]
    server: str
    rules: patterns.SectionRules
    limits: Limits

    def fits(self, tool: patterns.ToolFacts) -> bool:
        return self.server in ("", tool.server) and self.rules.first(tool) is not None


class LimitTable:
    """The limits of a server by pattern. For each kind of limit the most specific pattern decides.

    A pattern in a server's section is more specific than any other, then a name, then the pattern with more
    letters, then the one with a hint. Within a pattern, limits for the caller are looked at first, in order.
    """

    def __init__(
        self, general: Mapping[str, Limits], servers: Mapping[str, Mapping[str, Limits]] | None = None
    ) -> None:
        if not isinstance(general, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f'limits takes limits by pattern, {{"*": Limits(…)}}, not {general!r}')
        sections = [
            ("limits", "", general),
            *((f"{name}.limits", name, own) for name, own in (servers or {}).items()),
        ]
        entries: list[_ToolLimits] = []
        for place, server, section in sections:
            for pattern, limits in section.items():
                if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise DefinitionError(f'{place} takes limits by pattern, {{"*": …}}, not {pattern!r}')
                patterns.check_pattern(pattern, place)
                at = f"{place}[{pattern!r}]"
                if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise DefinitionError(f'{at} takes Limits(calls="20/day", …), not {limits!r}')
                take(limits)
                if not any(limits.given()) and not limits.callers:
                    raise DefinitionError(
                        f"{at}: Limits() limits nothing; give rate=…, calls=… or another limit"
                    )
                limits.taken()
                own = ((f"{at}.for[{number}]", one) for number, one in enumerate(limits.callers))
                entries += (_entry(where, server, pattern, one) for where, one in (*own, (at, limits)))
        self._entries = sorted(entries, key=lambda entry: entry.precision, reverse=True)
        self._for_some = [number for number, one in enumerate(self._entries) if one.limits.is_for_some]

    def group(self, caller: patterns.Caller | None) -> Group:
        """The limits that are for this caller and not for all; callers of one group have the same limits."""
        if caller is None:
            return ()
        return tuple(
            one for one in self._for_some if patterns.is_for(self._entries[one].rules.section, caller)
        )

    @property
    def varies(self) -> bool:
        """True if some limits are for some callers only."""
        return bool(self._for_some)

    def unreached(self, callers: Sequence[patterns.Caller]) -> Iterator[str]:
        """Messages on limits that apply to none of some callers."""
        entries = {id(one.rules.section): one for one in map(self._entries.__getitem__, self._for_some)}
        for section, before in patterns.asked_before(
            [one.rules.section for one in entries.values()], callers
        ):
            if not before:
                yield f"{section.place} applies to nobody, as no token is meant"
            entry = entries[id(section)]
            for wider in patterns.of_all(before):
                other = entries[id(wider)]
                both = dict(entry.limits.given()).keys() & dict(other.limits.given())
                if (other.server, wider.allow) == (entry.server, section.allow) and both:
                    told = f"its {min(both)} never applies, as {wider.place} has one before it"
                    yield f"{section.place}: {told}"

    def for_some(self, tool: patterns.ToolFacts) -> Group:
        """The limits of a tool that are for some callers only."""
        return tuple(one for one in self._for_some if self._entries[one].fits(tool))

    def unused(self, tools: Iterable[patterns.ToolFacts]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        known = list(tools)
        for entry in self._entries:
            of_it = [tool for tool in known if entry.server in ("", tool.server)]
            place = f"{entry.server}.limits" if entry.server else "limits"
            yield from ((place, one) for _, one in entry.rules.unused(of_it) if one != "*")

    def of(self, tool: patterns.ToolFacts, group: Group = ()) -> list[Limit]:
        """The limits of one tool and the callers of a group, at most one of each kind."""
        found: dict[str, Limit] = {}
        for number, entry in enumerate(self._entries):
            if (number in group or not entry.limits.is_for_some) and entry.fits(tool):
                for key, value in entry.limits.given():
                    found.setdefault(key, Limit(entry.rules.section.place, key, value))
        return list(found.values())


def _entry(place: str, server: str, pattern: str, limits: Limits) -> _ToolLimits:
    who = (
        None if names is None else tuple(names) for names in (limits.principals, limits.roles, limits.scopes)
    )
    section = patterns.Section(place, (pattern,), (), (), *who)
    return _ToolLimits(
        patterns.precision(pattern, server),
        server,
        patterns.SectionRules(section, of_server=bool(server)),
        limits,
    )
