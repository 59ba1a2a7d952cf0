"""`RegistryContents`: what a registry holds now, as servers and loops read it; `ToolRegistry` changes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial

from mcp_toolset._records import replace
from mcp_toolset.catalog.registry.name_assignment import key_of
from mcp_toolset.catalog.registry.state import RegistryEntry, ToolKey
from mcp_toolset.catalog.registry.surface import SourceHandle, Surface, shown_in
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.tools.binding.binding import Gate
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.tool_names import NameUse, ToolNames
from mcp_toolset.tools.view.unbound import KnownTools, NameReport, UnboundName
from mcp_toolset.tools.view.view import ToolBinding, ToolView


class HidingPatterns:
    """Remembers which patterns have matched a tool; such a pattern is never reported again."""

    def __init__(self) -> None:
        self._fitted: set[str] = set()

    def missing(
        self,
        patterns: Collection[str],
        entries: Iterable[RegistryEntry],
        tools: Iterable[ToolBinding],
        known: KnownTools,
    ) -> list[UnboundName]:
        """The patterns that have matched no tool: remembered, present or filtered out.

        A pattern that matches only the name of a tool before a prefix or a rename hides nothing.
        """
        left = self._left(patterns, entries)
        if not left:
            return []
        names = ToolNames(tools)
        uses = [NameUse(one, "registry.hide") for one in left]
        before = {use.name: sorted(names.reached(use)) or names.moved(use) for use in uses}
        left = self._left([one for one in left if not before[one]], known.everything())
        return [
            known.missing(use, before[use.name] or names.near(use))
            for use in uses
            if before[use.name] or use.name in left
        ]

    def require(self, missing: Iterable[UnboundName], known: KnownTools, strict: bool | None) -> None:
        """Refuse names that match no tool, if all tools are known; `UnknownToolError` has close matches."""
        for one in missing:
            is_error = strict is True or (strict is None and not known.sources and one.kind == "unknown")
            if is_error and not one.waiting:
                near = f"; did you mean {' or '.join(one.near)}?" if one.near else ""
                raise UnknownToolError(one.name, f" (in hide){near}")

    def _left(self, patterns: Collection[str], tools: Iterable[RegistryEntry | ToolBinding]) -> list[str]:
        """The patterns that have matched no tool so far, including the given tools."""
        left = [one for one in patterns if one not in self._fitted]
        names = {name for tool in tools for name in (tool.name, tool.asked) if name} if left else ()
        self._fitted.update(one for one in left if any(fnmatchcase(name, one) for name in names))
        return [one for one in left if one not in self._fitted]


class RegistryContents:
    """The tools of a registry, their sources and the members among them, read without a lock."""

    def __init__(self, hidden: Collection[str]) -> None:
        """Hold nothing; tools that fit a pattern of `hidden` stay out."""
        self._surface = Surface(hidden=tuple(hidden))
        self._hiding = HidingPatterns()
        self._missing_names = NameReport()

    @property
    def generation(self) -> int:
        """A number that grows by one with every change of a tool, a name or a membership."""
        return self._surface.generation

    @property
    def names(self) -> tuple[str, ...]:
        """The public names of the members, in order: the tools that can be called."""
        return tuple(self._surface.members)

    @property
    def orphaned(self) -> tuple[ToolKey, ...]:
        """Tools that are remembered while their source is missing."""
        surface = self._surface
        return tuple(key for key in surface.entries if key not in surface.live)

    @property
    def defers(self) -> bool:
        """Whether some tools are behind search."""
        return any(toolset.defers for toolset in self._surface.toolsets.values())

    @property
    def chooses(self) -> bool:
        """Whether tools are hidden by a pattern, switched off or behind search."""
        surface = self._surface
        return (
            bool(surface.hidden)
            or self.defers
            or any(one.member is False for one in surface.entries.values())
        )

    def handles(self) -> list[SourceHandle]:
        """The handles of the registered toolsets, in order."""
        return list(self._surface.toolsets)

    def toolsets(self) -> Iterable[Toolset]:
        """The registered toolsets, in order."""
        return self._surface.toolsets.values()

    def sources(self) -> Mapping[str, ToolSource]:
        """All mounted sources in the toolsets, by name."""
        return self._surface.sources

    def name_of(self, key: ToolKey) -> str:
        """The public name of a remembered tool; empty if it has none."""
        entry = self._surface.entries.get(key)
        return "" if entry is None else entry.name

    def absent(self, name: str) -> tuple[RegistryEntry, ToolSource] | None:
        """The remembered tool with this public name that is not listed now, and its mounted server.

        `None` for a tool that was removed from the members, that a policy hides, or that may be behind
        search.
        """
        surface = self._surface
        entry = next((one for one in surface.entries.values() if one.name == name), None)
        if entry is None or entry.key in surface.live or entry.member is False:
            return None
        if any(fnmatchcase(each, pattern) for pattern in surface.hidden for each in (name, entry.asked)):
            return None
        source = None if entry.source in self.deferring() else surface.sources.get(entry.source)
        return None if source is None else (entry, source)

    def deferring(self) -> frozenset[str]:
        """The names of the mounted servers all of whose tools are behind search."""
        surface = self._surface
        listing = (one for toolset in surface.toolsets.values() for one in toolset.listing_sources())
        return frozenset(surface.sources) - {source.source_name for source in listing}

    def members(self) -> dict[str, bool]:
        """Every present tool, and whether it is a member; hidden tools are left out."""
        surface = self._surface
        return {name: surface.members.get(name) == key_of(one) for name, one in shown_in(surface).items()}

    def bindings(self) -> list[ToolBinding]:
        """The members under their public names, in order."""
        return list(self._surface.offered.values())

    def known_tools(self) -> KnownTools:
        """The tools that a name may refer to: every tool of the toolsets, and the sources of more tools."""
        return KnownTools(self._everything, list(self.sources().values()), verbs=self.unbound)

    def unbound(self) -> list[UnboundName]:
        """The names given to verbs of the toolsets, or to `hide`, that match no tool; see docs/names.md."""
        surface = self._surface
        inside = [found for toolset in surface.toolsets.values() for found in toolset.unbound()]
        # A wrong name has raised already, unless the host said that the tool comes later.
        return [*inside, *(replace(one, kind="pattern") for one in self._missing(surface.hidden))]

    def _missing(self, patterns: Collection[str]) -> list[UnboundName]:
        """Patterns of `hide` that have never matched a tool."""
        surface = self._surface
        return self._hiding.missing(
            patterns, surface.entries.values(), surface.live.values(), self.known_tools()
        )

    def _everything(self) -> list[ToolBinding]:
        surface = self._surface
        inside = (one for toolset in surface.toolsets.values() for one in toolset.everything())
        return [*surface.live.values(), *inside]

    def view(self) -> ToolView:
        """The members as a frozen table, for a loop that the application owns.

        A call of a tool that has been removed from the registry is refused.
        """
        if self._surface.sources:
            self._missing_names.take(self.unbound(), is_closed=False)
        resident = (self.gated(binding) for binding in self.bindings() if not binding.deferred)
        return ToolView(resident, known=self.known_tools())

    def gated(self, binding: ToolBinding) -> ToolBinding:
        """The binding of a tool of this registry; it refuses calls once the tool is no longer a member."""
        return replace(binding, gate=partial(self._admit, key_of(binding), binding.gate))

    def _admit(self, key: ToolKey, inner: Gate | None, call: ToolCall, context: ToolContext) -> None:
        if self._surface.members.get(call.name) != key:
            raise UnknownToolError(call.name)
        if inner is not None:
            inner(call, context)
