"""`ToolRegistry`: all tools of a server, their sources, and which of them are members and can be called.

Toolsets are registered as sources and can be replaced or removed by their handles while calls are in
flight. A tool is a member of the catalog or not; every call checks that. Each change computes a new surface
and swaps it in under one lock, so that no thread sees half of it, and increments the registry's
generation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from mcp_toolset.catalog.registry.hiding_patterns import HidingPatterns
from mcp_toolset.catalog.registry.membership import RegistryMembership
from mcp_toolset.catalog.registry.name_assignment import NameRules, key_of
from mcp_toolset.catalog.registry.state import RegistryState, ToolKey
from mcp_toolset.catalog.registry.surface import (
    SourceHandle,
    Surface,
    compiled_anew,
    computed,
    shown_in,
    tell_altered,
)
from mcp_toolset.errors import StaleStateError, StateError, UnknownToolError
from mcp_toolset.tools.binding.binding import Gate
from mcp_toolset.tools.binding.selector import ToolSelector, public_name_of
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.names import limit_beside
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.unbound import KnownTools, NameReport, UnboundName
from mcp_toolset.tools.view.view import ToolBinding, ToolView


@dataclass(frozen=True, slots=True)
class StateReport:
    """The result of applying or restoring a state.

    Attributes:
        generation: The new generation.
        orphaned: Tools of the state whose source is missing.
    """

    generation: int
    orphaned: tuple[ToolKey, ...]


class ToolRegistry:
    """The sources of a catalog and the members among their tools; thread-safe."""

    def __init__(
        self,
        *toolsets: Toolset,
        client_prefix: str = "",
        reserved: Collection[str] = (),
        hidden: Iterable[str] = (),
    ) -> None:
        """Register `toolsets`, in this order.

        Args:
            *toolsets: The first sources.
            client_prefix: What a client puts before every name, such as `mcp__hub__`: the names with it have
                at most 64 characters.
            reserved: Names that no other tool may have while a toolset is deferred.
            hidden: Name patterns (`*_delete`) of tools that stay hidden, whatever else is decided. A pattern
                that matches nothing is allowed, as toolsets may be registered later; see `unbound`.

        Raises:
            NameConflictError: two tools or two mounts have the same name.
            DefinitionError: the client's prefix leaves too few characters.
        """
        self._lock = threading.RLock()
        self._rules = NameRules(frozenset(reserved), limit_beside(client_prefix))
        self._surface = Surface(hidden=tuple(hidden))
        self._listeners: dict[object, Callable[[], None]] = {}
        self._hiding = HidingPatterns()
        self._missing_names = NameReport()
        if toolsets:
            handles = {_handle_of(toolset): toolset for toolset in toolsets}
            self._put(compiled_anew(replace(self._surface, toolsets=handles)))

    @property
    def generation(self) -> int:
        """Grows by one with every change of the surface."""
        return self._surface.generation

    @property
    def names(self) -> tuple[str, ...]:
        """The public names of the members, in order: the tools that can be called."""
        return tuple(self._surface.members)

    @property
    def membership(self) -> RegistryMembership:
        """The members only, for a tool that may change them."""
        return RegistryMembership(self)

    @property
    def orphaned(self) -> tuple[ToolKey, ...]:
        """Tools that are remembered while their source is missing."""
        surface = self._surface
        return tuple(key for key in surface.entries if key not in surface.live)

    @property
    def defers(self) -> bool:
        """Whether some tools are behind search."""
        return any(toolset.defers for toolset in self._surface.toolsets.values())

    def handles(self) -> list[SourceHandle]:
        """The handles of the registered toolsets, in order."""
        return list(self._surface.toolsets)

    def sources(self) -> Mapping[str, ToolSource]:
        """All mounted sources in the toolsets, by name."""
        return self._surface.sources

    def absent_source(self, name: str) -> ToolSource | None:
        """The mounted server of a remembered tool with this public name that is not listed now.

        `None` for a tool that was removed from the members, that a policy hides, or that may be behind
        search.
        """
        surface = self._surface
        entry = next((one for one in surface.entries.values() if one.name == name), None)
        if entry is None or entry.key in surface.live or entry.member is False:
            return None
        if any(fnmatchcase(each, pattern) for pattern in surface.hidden for each in (name, entry.asked)):
            return None
        return None if entry.source in self.deferring() else surface.sources.get(entry.source)

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
        """What names are resolved against: every tool of the toolsets, and the sources of more tools."""
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

        A tool that has left the registry since is refused when it is called.
        """
        if self._surface.sources:
            self._missing_names.take(self.unbound(), is_closed=False)
        resident = (self.gated(binding) for binding in self.bindings() if not binding.deferred)
        return ToolView(resident, known=self.known_tools())

    def gated(self, binding: ToolBinding) -> ToolBinding:
        """The binding of a tool of this registry; it refuses calls once the tool is no longer a member."""
        return replace(binding, gate=partial(self._admit, key_of(binding), binding.gate))

    def register(self, toolset: Toolset) -> SourceHandle:
        """Register another toolset.

        Raises:
            NameConflictError: it has a local tool or a mount whose name is taken; nothing has
                changed.
        """
        handle = _handle_of(toolset)
        with self._changing() as surface:
            self._put(compiled_anew(replace(surface, toolsets={**surface.toolsets, handle: toolset})))
        return handle

    def check(self, toolset: Toolset, *, instead_of: SourceHandle | None = None) -> None:
        """Check whether a toolset could be registered, or replace another one; nothing is changed.

        Raises:
            NameConflictError: it has a local tool or a mount whose name is taken.
        """
        surface = self._surface
        others = {other: one for other, one in surface.toolsets.items() if other is not instead_of}
        wanted = replace(surface, toolsets={**others, _handle_of(toolset): toolset})
        computed(compiled_anew(wanted), self._rules)

    def replace(self, handle: SourceHandle, toolset: Toolset) -> None:
        """Replace a toolset by another one; tools with the same id keep names and membership.

        Raises:
            StateError: the handle is not registered.
            NameConflictError: a name is taken; the old toolset stays.
        """
        with self._changing() as surface:
            self._require(handle)
            self._put(compiled_anew(replace(surface, toolsets={**surface.toolsets, handle: toolset})))

    def remove(self, handle: SourceHandle) -> None:
        """Remove a toolset; decisions about its tools are kept until they return.

        Raises:
            StateError: the handle is not registered.
        """
        with self._changing() as surface:
            self._require(handle)
            rest = {other: toolset for other, toolset in surface.toolsets.items() if other is not handle}
            self._put(compiled_anew(replace(surface, toolsets=rest)))

    def refresh(self) -> int:
        """Compile the toolsets again, such as after a server has listed other tools; return the generation.

        Raises:
            NameConflictError: two local tools have the same name now; the last surface stays.
        """
        with self._changing() as surface:
            self._put(compiled_anew(surface))
        return self.generation

    def enable(self, *tools: ToolSelector) -> int:
        """Make tools members, given by public name or as tools; return the generation.

        Raises:
            UnknownToolError: one of them does not exist, or is hidden; nothing has changed.
        """
        return self.choose(dict.fromkeys(tools, True))

    def disable(self, *tools: ToolSelector) -> int:
        """Remove tools from the members; calls in flight end normally. Return the generation.

        Raises:
            UnknownToolError: one of them does not exist, or is hidden; nothing has changed.
        """
        return self.choose(dict.fromkeys(tools, False))

    def choose(self, members: Mapping[ToolSelector, bool | None]) -> int:
        """Set the membership of some tools at once; `None` leaves it to their toolset. Return the generation.

        Raises:
            UnknownToolError: one of them does not exist, or is hidden; nothing has changed.
        """
        with self._changing() as surface:
            return self._choose(surface, members)

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Set the membership of some tools like `choose`, if nothing has changed since `generation`.

        Raises:
            StaleStateError: the registry has another generation now; nothing has changed.
            UnknownToolError: one of them does not exist, or is hidden; nothing has changed.
        """
        with self._changing() as surface:
            _require_fresh(generation, surface)
            return self._choose(surface, members)

    def hide(self, *patterns: str, strict: bool | None = None) -> int:
        """Hide tools by name patterns, whatever else is decided; return the generation.

        A pattern is compared with the public name and with the name that the toolset gave, so that no
        tool escapes by a name that was altered. It is the host's policy, not part of a state: it holds for
        tools that come later, and through `apply_state` and `restore_state`.

        Args:
            *patterns: The patterns.
            strict: `False` allows names of tools that come later; `True` also refuses patterns that match
                nothing, as soon as all mounted servers have listed.

        Raises:
            UnknownToolError: a name matches no tool, and all tools are known; nothing has changed.
        """
        with self._changing() as surface:
            if surface.toolsets:
                self._hiding.require(self._missing(patterns), self.known_tools(), strict)
            self._put(replace(surface, hidden=(*surface.hidden, *patterns), chosen={}))
        return self.generation

    def snapshot(self) -> RegistryState:
        """The whole surface as data, to keep, to edit and to apply."""
        surface = self._surface
        return RegistryState(surface.generation, tuple(surface.entries.values()))

    def apply_state(self, state: RegistryState) -> StateReport:
        """Apply a state to the surface, if nothing has changed since the state was taken.

        Tools missing from the state are switched off, and orphans missing from it are forgotten. Tools of the
        state whose source is missing become orphans.

        Raises:
            StaleStateError: the registry has another generation now; nothing has changed.
        """
        _require_fresh(state.generation, self._surface)
        with self._changing() as surface:
            _require_fresh(state.generation, surface)
            entries = {entry.key: entry for entry in state.tools}
            names = {entry.name for entry in state.tools}
            for key in surface.live.keys() - entries.keys():
                left = replace(surface.entries[key], member=False)
                entries[key] = replace(left, name="") if left.name in names else left
            generation = surface.generation + 1
            self._put(replace(surface, entries=entries, generation=generation, parts={}, chosen={}))
            return StateReport(self._surface.generation, _orphaned(state, self._surface))

    def restore_state(self, state: RegistryState) -> StateReport:
        """Restore a saved state and its generation, on a cold start.

        Tools in the state get their names and membership back, now or when their source is registered; other
        tools stay unchanged. Snapshots taken before are invalid.
        """
        with self._changing() as surface:
            kept = {key: entry for key, entry in surface.entries.items() if key in surface.live}
            entries = {**kept, **{entry.key: entry for entry in state.tools}}
            before = replace(
                surface, entries=entries, live={}, generation=state.generation, parts={}, chosen={}
            )
            self._surface = replace(computed(before, self._rules), generation=state.generation)
            return StateReport(state.generation, _orphaned(state, self._surface))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change, in the thread that made it; return a function to stop this."""
        token = object()
        self._listeners[token] = callback
        return lambda: self._listeners.pop(token, None) and None

    @contextmanager
    def _changing(self) -> Generator[Surface]:
        """Hold the lock; afterwards notify the listeners, outside of the lock, if something has changed."""
        with self._lock:
            before = self._surface
            yield before
            after = self._surface
        if not after.same_as(before):
            for callback in list(self._listeners.values()):
                callback()

    def _choose(self, surface: Surface, members: Mapping[Any, bool | None]) -> int:
        shown, entries = shown_in(surface), dict(surface.entries)
        for selector, member in members.items():
            key = key_of(shown[public_name_of(selector, shown)])
            entries[key] = replace(entries[key], member=member)
        self._put(replace(surface, entries=entries, chosen={}))
        return self._surface.generation

    def _put(self, wanted: Surface) -> None:
        """Compute a surface and swap it in; without a difference the generation stays."""
        before = self._surface
        after = computed(wanted, self._rules)
        if after.generation == before.generation:
            # Definitions may still differ; the generation does not count them.
            moved = not after.same_as(before)
            after = replace(after, generation=before.generation + moved)
        tell_altered(after, before)
        self._surface = after

    def _require(self, handle: SourceHandle) -> None:
        if handle not in self._surface.toolsets:
            raise StateError(f"source {handle.name!r} is not registered here, or was removed already")

    def _admit(self, key: ToolKey, inner: Gate | None, call: ToolCall, context: ToolContext) -> None:
        if self._surface.members.get(call.name) != key:
            raise UnknownToolError(call.name)
        if inner is not None:
            inner(call, context)


def _handle_of(toolset: Toolset) -> SourceHandle:
    return SourceHandle(toolset.name or type(toolset).__name__)


def _require_fresh(generation: int, surface: Surface) -> None:
    if generation != surface.generation:
        raise StaleStateError(
            f"the state is of generation {generation}, the registry of {surface.generation} by now; "
            "take a new snapshot and decide again"
        )


def _orphaned(state: RegistryState, surface: Surface) -> tuple[ToolKey, ...]:
    return tuple(entry.key for entry in state.tools if entry.key not in surface.live)
