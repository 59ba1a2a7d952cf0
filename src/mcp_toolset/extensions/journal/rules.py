"""`JournalRules`: which tools are recorded in a journal, and which may run again after an unknown outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, get_args

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.journal.modes import Mode, Modes
from mcp_toolset.security.patterns import Section, SectionRules, check_pattern, precision
from mcp_toolset.security.policy import facts_of
from mcp_toolset.tools.binding import DEFERRED_CATALOG, EVERY_TOOL, ToolBinding


class _Entry(NamedTuple):
    precision: tuple[bool, bool, int, bool]
    server: str
    rules: SectionRules
    mode: Mode


class JournalRules:
    """The mode of each tool: the most specific pattern decides, as with limits, else the tool's own hints.

    Without a pattern a tool that only reads is not recorded, and an idempotent one may be repeated.
    """

    def __init__(
        self, general: Modes | None = None, servers: Mapping[str, Modes] | None = None, *, reads: bool = False
    ) -> None:
        """Take the modes for all tools, and those for the tools of mounted servers.

        Args:
            general: For all tools.
            servers: By mounted server, for its tools; such a pattern is used before one for all tools.
            reads: Whether tools that only read are recorded too.

        Raises:
            DefinitionError: a pattern names nothing, or there is no such mode.
        """
        sections = [("journal", "", general or {})]
        sections += [(f"{name}.journal", name, own) for name, own in (servers or {}).items()]
        found = [
            _entry(place, server, pattern, mode)
            for place, server, modes in sections
            for pattern, mode in modes.items()
        ]
        self._entries = sorted(found, key=lambda entry: entry.precision, reverse=True)
        self._reads = reads

    def mode(self, binding: ToolBinding) -> Mode:
        """The mode of a tool; the tools of the bridge itself have no effects of their own."""
        if binding.redirect is not None or binding.place == DEFERRED_CATALOG:
            return "off"
        definition, facts = binding.definition, facts_of(binding)
        for entry in self._entries:
            if entry.server in ("", facts.server) and entry.rules.first(facts) is not None:
                return entry.mode
        if definition.read_only and not self._reads:
            return "off"
        return "repeat" if definition.repeatable else "once"

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        tools = [facts_of(one) for one in bindings]
        for entry in self._entries:
            among = [one for one in tools if entry.server in ("", one.server)]
            for _, pattern in entry.rules.unused(among):
                if pattern != EVERY_TOOL:
                    yield entry.rules.section.place, pattern


def _entry(place: str, server: str, pattern: str, mode: Mode) -> _Entry:
    check_pattern(pattern, place)
    if mode not in get_args(Mode):
        raise DefinitionError(f"{place}: {pattern!r} is one of {', '.join(get_args(Mode))}, not {mode!r}")
    rules = SectionRules(Section(place, allow=(pattern,)), of_server=bool(server))
    return _Entry(precision(pattern, server), server, rules, mode)
