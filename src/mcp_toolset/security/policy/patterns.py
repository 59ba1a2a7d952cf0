"""Patterns of tools and callers: `fnmatch` on names; the hints of a tool go before them (`destructive:*`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from typing import Any, Final, NamedTuple, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.security.policy.sections import Kind, Section

Hints = Mapping[str, Any]


def _said(hints: Hints, key: str, default: bool) -> bool:
    said = hints.get(key)
    return said if isinstance(said, bool) else default


HINTS: Final[Mapping[str, Callable[[Hints], bool]]] = {
    "destructive": lambda hints: _said(hints, "destructiveHint", not _said(hints, "readOnlyHint", False)),
    "readOnly": lambda hints: (
        _said(hints, "readOnlyHint", False) and not _said(hints, "destructiveHint", False)
    ),
    "idempotent": lambda hints: _said(hints, "idempotentHint", False),
    "openWorld": lambda hints: _said(hints, "openWorldHint", True),
}
"""What may stand before a pattern. A missing hint counts as the protocol says (server/tools, annotations)."""


_LEAST_LIKE: Final = 0.75
"""How much a misspelt hint has in common with the hint that is meant, from 0 to 1."""


class ToolFacts(NamedTuple):
    """What patterns look at of a tool.

    Attributes:
        name: Its public name.
        asked: The name that the host gives it, if it is served under another one.
        server: The mounted server that it is of; empty for a local tool.
        own: Its name on that server.
        hints: Which of `HINTS` hold for it.
    """

    name: str
    asked: str = ""
    server: str = ""
    own: str = ""
    hints: frozenset[str] = frozenset()

    def names(self, *, own: bool = False) -> list[str]:
        """Its public names, then `server/tool`; with `own` its name on the server, too."""
        names = [self.name, self.asked, f"{self.server}/{self.own}" if self.server else ""]
        return [name for name in (*names, self.own if own else "") if name]


def hints_of(annotations: Hints | None) -> frozenset[str]:
    """Which hints hold for a tool with these annotations."""
    return frozenset(name for name, holds in HINTS.items() if holds(annotations or {}))


def split_hint(pattern: str) -> tuple[str, str]:
    """The hint before a pattern, empty for none, and the rest."""
    hint, colon, rest = pattern.partition(":")
    return (hint, rest) if colon and hint in HINTS else ("", pattern)


def fault_of(pattern: str) -> tuple[str, str] | None:
    """What is wrong with a pattern that names nothing, or whose hint is misspelt; and the remedy."""
    hint, colon, rest = pattern.partition(":")
    if not split_hint(pattern)[1].strip():
        return "names no tool", "write a name or a pattern, such as `*`"
    if not colon or hint in HINTS:
        return None
    known = {one.lower(): one for one in HINTS}
    meant = get_close_matches(hint.lower().replace("_", ""), known, n=1, cutoff=_LEAST_LIKE)
    return (f"there is no hint `{hint}`", f"did you mean `{known[meant[0]]}:{rest}`?") if meant else None


def check_pattern(pattern: str, place: str) -> None:
    """Raise `DefinitionError` for a pattern with a fault."""
    if fault := fault_of(pattern):
        raise DefinitionError(f"{place}: {pattern!r}: {fault[0]}; {fault[1]}")


def is_caller(pattern: str, name: str, key: str) -> bool:
    """Whether a pattern is for a caller: its name, a pattern of its name, or its key, beginning with `[`."""
    if pattern.startswith("["):
        # Never a name: a user may be called what the key of another one is.
        return pattern == key
    return pattern in (name, key) or fnmatchcase(name, pattern)


class Caller(Protocol):
    """What sections look at of a caller: an `Identity`."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def key(self) -> str:
        """What it is told apart by."""
        ...

    @property
    def roles(self) -> frozenset[str]:
        """Its roles."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """What its credentials allow."""
        ...


def is_for(section: Section, caller: Caller) -> bool:
    """Whether a section is for a caller: each kind that it names has to fit."""
    wanted, name, key = section.principals, caller.name, caller.key
    return (
        (wanted is None or any(is_caller(one, name, key) for one in wanted))
        and (section.roles is None or not caller.roles.isdisjoint(section.roles))
        and (section.scopes is None or not caller.scopes.isdisjoint(section.scopes))
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Kind
    pattern: str
    hint: str
    fits: Callable[[str], object]


class SectionRules:
    """The patterns of one section, compiled.

    Attributes:
        section: The section.
    """

    __slots__ = ("_any", "_own", "_rules", "section")

    def __init__(self, section: Section, *, of_server: bool = False) -> None:
        """Compile a section; that of a server compares patterns with the server's own names, too.

        Raises:
            DefinitionError: a pattern names nothing.
        """
        self.section = section
        self._own = of_server
        self._rules: list[_Rule] = []
        parts: list[str] = []
        for kind, pattern in section.patterns():
            check_pattern(pattern, f"{section.place}.{kind}")
            hint, name = split_hint(pattern)
            # A name with `[` in it is meant as it is written, too.
            parts.append(f"(?:{translate(name)}|{re.escape(name)}\\Z)")
            self._rules.append(_Rule(kind, pattern, hint, re.compile(parts[-1]).match))
        # Most tools fit none of many patterns: one look at all of them says so.
        self._any = re.compile("|".join(parts) or r"(?!)").match

    def first(self, tool: ToolFacts) -> tuple[Kind, str] | None:
        """The first pattern that fits a tool, and what it decides: `deny` before `ask` before `allow`."""
        names = tool.names(own=self._own)
        if not any(map(self._any, names)):
            return None
        return next(
            (
                (rule.kind, rule.pattern)
                for rule in self._rules
                if (not rule.hint or rule.hint in tool.hints) and any(map(rule.fits, names))
            ),
            None,
        )

    def unused(self, tools: Iterable[ToolFacts]) -> list[tuple[Kind, str]]:
        """The patterns whose names fit none of the tools, whatever the hints of the tools are."""
        names = {name for tool in tools for name in tool.names(own=self._own)}
        return [(rule.kind, rule.pattern) for rule in self._rules if not any(map(rule.fits, names))]
