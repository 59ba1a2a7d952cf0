"""`Limits`: what callers may use of tools, as data; `LimitTable`: which limits hold for one tool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import inf
from typing import Any, Final, NamedTuple

from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.patterns import SectionRules, ToolFacts, check_pattern, split_hint
from mcp_toolset.security.policy.sections import Section

UNITS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
}
"""What may stand behind the number of a rate, in seconds."""

_PER: Final = re.compile(r"([1-9][0-9]{0,8})/([a-z]+)")
_WILD: Final = re.compile(r"\[.*?\]|[*?]")


class Per(NamedTuple):
    """So many calls in so many seconds."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one pattern. Each counts all tools of the pattern together, and each caller apart.

    Attributes:
        rate: Calls per time, such as `"60/min"`: at once or spread out.
        calls: Calls per day, or as in `"100/hour"`; counted anew when the day or the hour begins, in UTC.
        concurrency: Calls that run at the same time; others wait for as long as `timeout`.
        timeout: Seconds for one call.
        result_bytes: Bytes of one result in JSON; longer text is cut.

    Raises:
        DefinitionError: a value cannot be used; the message says which, and what can be written.
    """

    rate: str | None = None
    calls: str | int | None = None
    concurrency: int | None = None
    timeout: float | None = None
    result_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        for key, value in self.given():
            if fault := fault_of(key, value):
                raise DefinitionError(f"Limits({key}={value!r}): {fault}")

    def given(self) -> Iterator[tuple[str, Any]]:
        """The limits that are set, by name."""
        for field in fields(self):
            if (value := getattr(self, field.name)) is not None:
                yield field.name, value


NAMES: Final = tuple(field.name for field in fields(Limits))


def fault_of(key: str, value: object) -> str:
    """What is to be written instead of a value that cannot be used; empty for one that can."""
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


def per(value: str | int) -> Per:
    """A checked rate as numbers; a plain number is per day."""
    number, _, unit = str(value).partition("/")
    return Per(int(number), UNITS[unit or "day"])


class Limit(NamedTuple):
    """One limit of a tool.

    Attributes:
        place: The pattern that it is from; all tools of the pattern share it.
        key: Which limit, such as `rate`.
        value: Its value.
    """

    place: str
    key: str
    value: Any


class LimitTable:
    """The limits of a server by pattern. For each kind of limit the most specific pattern decides.

    A pattern in a server's section is more specific than any other, then a name, then the pattern with more
    letters, then the one with a hint.
    """

    def __init__(
        self, general: Mapping[str, Limits], servers: Mapping[str, Mapping[str, Limits]] | None = None
    ) -> None:
        """Take the limits for all tools, and those for the tools of mounted servers.

        Raises:
            DefinitionError: a pattern names nothing.
        """
        sections = [
            ("limits", "", general),
            *((f"{name}.limits", name, own) for name, own in (servers or {}).items()),
        ]
        entries: list[tuple[tuple[bool, bool, int, bool], str, SectionRules, Limits]] = []
        for place, server, section in sections:
            for pattern, limits in section.items():
                check_pattern(pattern, place)
                rules = SectionRules(Section(place, allow=(pattern,)), of_server=bool(server))
                entries.append((_precision(pattern, server), server, rules, limits))
        self._entries = sorted(entries, key=lambda entry: entry[0], reverse=True)

    def of(self, tool: ToolFacts) -> list[Limit]:
        """The limits of one tool, at most one of each kind."""
        found: dict[str, Limit] = {}
        for _, server, rules, limits in self._entries:
            if server in ("", tool.server) and (first := rules.first(tool)) is not None:
                for key, value in limits.given():
                    found.setdefault(key, Limit(f"{rules.section.place}[{first[1]!r}]", key, value))
        return list(found.values())


def _precision(pattern: str, server: str) -> tuple[bool, bool, int, bool]:
    hint, name = split_hint(pattern)
    plain = _WILD.sub("", name)
    return bool(server), plain == name, len(plain), bool(hint)
