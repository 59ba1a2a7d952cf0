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
from typing import Any, Protocol, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.registry.contents import RegistryContents
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
from mcp_toolset.errors import DefinitionError, StaleStateError, StateError
from mcp_toolset.tools.binding.selector import ToolSelector, public_name_of
from mcp_toolset.tools.core.names import limit_beside
from mcp_toolset.tools.toolsets.toolset import Toolset, Transformed


class Members(Protocol):
    """The methods of a `ToolRegistry` that are used here."""

    @property
    def generation(self) -> int:
        """The generation, which grows with each change."""
        ...

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, and whether it is a member."""
        ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Add tools to the members or remove them; return the new generation."""
        ...


class RegistryMembership:
    """Reads and changes the members of a registry."""

    def __init__(self, registry: Members) -> None:
        """Give access to the members of `registry` only."""
        self._registry = registry

    @property
    def generation(self) -> int:
        """The generation, which grows with each change of the registry."""
        return self._registry.generation

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, without hidden tools, and whether it is a member."""
        return self._registry.members()

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Add tools to the members or remove them, all or nothing; return the new generation."""
        return self._registry.change(members, generation=generation)


@dataclass(frozen=True, slots=True)
class StateReport:
    """The result of applying or restoring a state.

    Attributes:
        generation: The new generation.
        orphaned: Tools of the state whose source is missing.
    """

    generation: int
    orphaned: tuple[ToolKey, ...]


class ToolRegistry(RegistryContents):
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
            hidden: Name patterns (`*_delete`) of tools that always stay hidden. A pattern that matches
                nothing is allowed, because toolsets may be registered later; see `unbound`.

        Raises:
            NameConflictError: two tools or two mounts have the same name.
            DefinitionError: the client's prefix leaves too few characters.
        """
        super().__init__(tuple(hidden))
        self._lock = threading.RLock()
        self._rules = NameRules(frozenset(reserved), limit_beside(client_prefix))
        self._listeners: dict[object, Callable[[], None]] = {}
        if toolsets:
            handles = {_handle_of(toolset): toolset for toolset in toolsets}
            self._put(compiled_anew(replace(self._surface, toolsets=handles)))

    @property
    def membership(self) -> RegistryMembership:
        """The members only, for a tool that may change them."""
        return RegistryMembership(self)

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
            DefinitionError: a choice is neither `True`, `False` nor `None`.
        """
        for selector, choice in members.items():
            if choice not in (True, False, None):
                raise DefinitionError(f"choose: {selector} is chosen by True, False or None, not {choice!r}")
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
        """Hide tools by name patterns, even if they are members; return the generation.

        A pattern is compared with the public name and with the name that the toolset gave, so that no
        tool escapes by a name that was altered. Hiding is not part of a state: it also applies to tools that
        come later, and `apply_state` and `restore_state` do not end it.

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
        """The names and membership of all tools as data, to save, edit and apply."""
        surface = self._surface
        return RegistryState(surface.generation, tuple(surface.entries.values()))

    def apply_state(self, state: RegistryState) -> StateReport:
        """Set names and membership to a state, if nothing has changed since the state was taken.

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


def _handle_of(toolset: Toolset) -> SourceHandle:
    """The handle of a toolset: its name, else that of its class, else those of its first tools."""
    if not isinstance(toolset, Toolset):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"a registry takes toolsets, not {toolset!r}; write Toolset(…) around tools")
    inner = toolset
    while isinstance(inner, Transformed):
        [inner] = cast("list[Toolset]", list(inner.members()))
    kind, names = type(inner).__name__, toolset.names()
    shown = ", ".join([*names[:3], "…"] if len(names) > 3 else names)
    return SourceHandle(toolset.name or (kind if type(inner) is not Toolset else f"Toolset({shown})"))


def _require_fresh(generation: int, surface: Surface) -> None:
    if generation != surface.generation:
        raise StaleStateError(
            f"the registry has changed since this snapshot ({generation} → {surface.generation}); "
            "take a new snapshot and try again"
        )


def _orphaned(state: RegistryState, surface: Surface) -> tuple[ToolKey, ...]:
    return tuple(entry.key for entry in state.tools if entry.key not in surface.live)
