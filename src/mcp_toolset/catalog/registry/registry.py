"""`ToolRegistry`: all tools of a server, their sources, and which of them are members and can be called.

Toolsets are registered as sources and can be replaced or removed by their handles while calls are in
flight. A tool is a member of the catalog or not; every call checks that. Each change computes a new surface
and swaps it in under one lock, so that no thread sees half of it, and increments the registry's
generation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, cast

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.registry.state import (
    Assigned,
    NameRules,
    RegistryEntry,
    RegistryState,
    ToolKey,
    assigned,
    key_of,
)
from mcp_toolset.errors import (
    DefinitionError,
    NameConflictError,
    StaleStateError,
    StateError,
    UnknownToolError,
)
from mcp_toolset.tools.binding import Gate, NameUse, ToolNames, ToolSelector, public_name_of
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import limit_beside, readable_name
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.toolset import Toolset, Transformed, inside
from mcp_toolset.tools.view import KnownTools, Made, NameReport, ToolBinding, ToolView, UnboundName, distinct

MAX_ORPHANS: Final = 10_000  # remembered tools without a source; the oldest undecided ones go first

Entries = Mapping[ToolKey, RegistryEntry]


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The members among some tools, by public name, in order."""

    keys: Mapping[str, ToolKey]  # the source and id of each
    bindings: Mapping[str, ToolBinding]  # the bindings to call


def chosen(live: Mapping[ToolKey, ToolBinding], entries: Entries, hidden: Collection[str]) -> Chosen:
    members = {
        key: binding
        for key, binding in live.items()
        if (binding.on if (said := entries[key].member) is None else said) and not is_hidden(binding, hidden)
    }
    bindings = {one.name: one if one.on else replace(one, on=True) for one in members.values()}
    return Chosen({binding.name: key for key, binding in members.items()}, bindings)


def joined(parts: Mapping[str, Chosen], order: Iterable[ToolBinding] | None) -> Chosen:
    """The members of all parts, in the order of some tools; `None` stands for that of the parts."""
    keys: dict[str, ToolKey] = {}
    bindings: dict[str, ToolBinding] = {}
    for part in parts.values():
        keys.update(part.keys)
        bindings.update(part.bindings)
    if order is None:
        return Chosen(keys, bindings)
    names = [one.name for one in order if one.name in keys]
    return Chosen({name: keys[name] for name in names}, {name: bindings[name] for name in names})


def remembered(entries: Entries, live: Mapping[ToolKey, ToolBinding], fresh: Collection[str]) -> Entries:
    given = {key: binding for key, binding in live.items() if key.source in fresh}
    names = {binding.name for binding in given.values()}
    altered = {
        key: replace(entries[key], name="")
        for key in entries.keys() - live.keys()
        if entries[key].name in names
    }
    for key, binding in given.items():
        asked, known = binding.asked or binding.name, entries.get(key)
        if known is None or (known.name, known.asked) != (binding.name, asked):
            member = None if known is None else known.member
            altered[key] = RegistryEntry(key.source, key.id, binding.name, asked, member)
    kept = {**entries, **altered} if altered else entries
    excess = len(kept) - len(live) - MAX_ORPHANS
    if excess <= 0:
        return kept
    idle = [key for key, entry in kept.items() if key not in live and entry.member is None]
    gone = frozenset(idle[:excess])
    return {key: entry for key, entry in kept.items() if key not in gone}


def is_hidden(binding: ToolBinding, patterns: Iterable[str]) -> bool:
    """True if a policy hides a tool, by its public name or the name that its toolset gave it."""
    names = {binding.name, binding.asked or binding.name}
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


_log = logging.getLogger("mcp_toolset.registry")


@dataclass(frozen=True, eq=False, slots=True)
class SourceHandle:
    """One registered toolset, as a handle to replace or remove it by.

    Attributes:
        name: The toolset's name, for people; it need not be unique.
    """

    name: str


@dataclass(frozen=True, slots=True)
class RegistrySurface:
    """All tools, names and members at one generation; replaced as a whole, never changed."""

    generation: int = 0
    toolsets: Mapping[SourceHandle, Toolset] = field(default_factory=dict[SourceHandle, Toolset])
    entries: Mapping[ToolKey, RegistryEntry] = field(default_factory=dict[ToolKey, RegistryEntry])
    live: Mapping[ToolKey, ToolBinding] = field(default_factory=dict[ToolKey, ToolBinding])
    members: Mapping[str, ToolKey] = field(default_factory=dict[str, ToolKey])
    hidden: tuple[str, ...] = ()
    sources: Mapping[str, ToolSource] = field(default_factory=dict[str, ToolSource])
    compiled: tuple[ToolBinding, ...] = ()
    offered: Mapping[str, ToolBinding] = field(default_factory=dict[str, ToolBinding])
    # The results for each source, which a change of another source reuses.
    parts: Mapping[str, Assigned] = field(default_factory=dict[str, Assigned])
    chosen: Mapping[str, Chosen] = field(default_factory=dict[str, Chosen])

    def same_as(self, other: RegistrySurface) -> bool:
        """True if the two differ in nothing that a state or a caller can see."""
        mine = (self.toolsets, self.entries, self.members, self.hidden)
        return mine == (other.toolsets, other.entries, other.members, other.hidden) and self._same_keys(other)

    def _same_keys(self, other: RegistrySurface) -> bool:
        return self.parts.keys() == other.parts.keys() and all(
            part is other.parts[source] or part.live.keys() == other.parts[source].live.keys()
            for source, part in self.parts.items()
        )


def computed(wanted: RegistrySurface, given: NameRules) -> RegistrySurface:
    toolsets = wanted.toolsets.values()
    rules = given if any(toolset.defers for toolset in toolsets) else replace(given, reserved=frozenset())
    live_before = wanted.live.keys()
    parts, live, in_one_piece = assigned(wanted.compiled, wanted.entries, live_before, rules, wanted.parts)
    fresh = {source for source, part in parts.items() if wanted.parts.get(source) is not part}
    entries = remembered(wanted.entries, live, fresh)
    by_source = {
        source: wanted.chosen[source]
        if source in wanted.chosen and source not in fresh
        else chosen(part.live, entries, wanted.hidden)
        for source, part in parts.items()
    }
    members = joined(by_source, None if in_one_piece else live.values())
    return replace(
        wanted,
        entries=entries if entries is wanted.entries else MappingProxyType(dict(entries)),
        live=MappingProxyType(live),
        members=MappingProxyType(members.keys),
        offered=MappingProxyType(members.bindings),
        parts=parts,
        chosen=by_source,
    )


def compiled_anew(current: RegistrySurface) -> RegistrySurface:
    toolsets = current.toolsets.values()
    compiled = distinct([binding for toolset in toolsets for binding in toolset.bindings()])
    return replace(current, sources=MappingProxyType(_sources_of(toolsets)), compiled=tuple(compiled))


def tell_altered(after: RegistrySurface, before: RegistrySurface) -> None:
    fresh = (part for source, part in after.parts.items() if part is not before.parts.get(source))
    for key, binding in (item for part in fresh for item in part.live.items()):
        entry = after.entries[key]
        if entry.name in (entry.asked, readable_name(entry.asked, binding.definition.name)):
            continue
        if before.entries.get(key) != entry:
            _log.warning(
                "%s: %s is served as %s", binding.place or "a tool", in_log(entry.asked), in_log(entry.name)
            )


def _sources_of(toolsets: Iterable[Toolset]) -> dict[str, ToolSource]:
    named: dict[str, ToolSource] = {}
    for source in (source for toolset in toolsets for source in toolset.sources()):
        if named.setdefault(source.source_name, source) is not source:
            raise NameConflictError(
                f"two mounts are named {source.source_name!r}; give each its own name with name=…"
            )
    return named


def shown_in(current: RegistrySurface) -> dict[str, ToolBinding]:
    return {one.name: one for one in current.live.values() if not is_hidden(one, current.hidden)}


def _require(missing: Iterable[UnboundName], known: KnownTools, strict: bool | None) -> None:
    """Refuse names that match no tool, if all tools are known; `UnknownToolError` has close matches."""
    for one in missing:
        is_error = strict is True or (strict is None and known.is_closed and one.kind == "unknown")
        if is_error and not one.waiting:
            near = f"; did you mean {' or '.join(one.near)}?" if one.near else ""
            raise UnknownToolError(one.name, f" (in hide){near}")


class RegistryMembership:
    """Reads and changes the members of a registry."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        # Every tool by public name, without hidden tools, and whether it is a member.
        self.members = registry.members
        # Adds tools to the members or removes them, all or nothing; returns the new generation.
        self.change = registry.change

    @property
    def generation(self) -> int:
        """The generation, which grows with each change of the registry."""
        return self._registry.generation


@dataclass(frozen=True, slots=True)
class StateReport:
    """The result of applying or restoring a state.

    Attributes:
        generation: The new generation.
        orphaned: Tools of the state whose source is missing.
    """

    generation: int
    orphaned: tuple[ToolKey, ...]


class _Admission:
    """The gate of a tool of a registry; each tool has one in each view, so it is small."""

    __slots__ = ("_inner", "_key", "_registry")

    def __init__(self, registry: ToolRegistry, key: ToolKey, inner: Gate | None) -> None:
        self._registry, self._key, self._inner = registry, key, inner

    def __call__(self, call: ToolCall, context: ToolContext) -> None:
        now = self._registry._now  # pyright: ignore[reportPrivateUsage]  # a method would cost each call
        if now.members.get(call.name) != self._key:
            raise UnknownToolError(call.name)
        if self._inner is not None:
            self._inner(call, context)


class ToolRegistry:
    """The sources of a catalog and the members among their tools; thread-safe."""

    def __init__(
        self,
        *toolsets: Toolset,
        client_prefix: str = "",
        reserved: Collection[str] = (),
        hidden: Iterable[str] = (),
        is_part: bool = False,
    ) -> None:
        """Register `toolsets`, in this order.

        Args:
            *toolsets: The first sources.
            client_prefix: The text that a client puts before every name, such as `mcp__hub__`: the names
                with it have at most 64 characters.
            reserved: Names that no other tool may have while a toolset is deferred.
            hidden: Name patterns (`*_delete`) of tools that always stay hidden. A pattern that matches
                nothing is allowed, because toolsets may be registered later; see `unbound`.
            is_part: True if the toolsets are a part of those that rules are for, so that a name in a rule
                which fits none of their tools is no mistake.

        Raises:
            NameConflictError: two tools or two mounts have the same name.
            DefinitionError: the client's prefix leaves too few characters.
        """
        self._now = RegistrySurface(hidden=tuple(hidden))
        self._is_part = is_part
        self._admitting = Made(self.gated)
        self._fitted = set[str]()  # patterns that have matched a tool, which are never reported again
        self._missing_names = NameReport()
        self._lock = threading.RLock()
        self._rules = NameRules(frozenset(reserved), limit_beside(client_prefix))
        self._listeners = Callbacks()
        self.on_change = self._listeners.add  # returns what ends the calls
        if toolsets:
            handles = {_handle_of(toolset): toolset for toolset in toolsets}
            self._put(compiled_anew(replace(self._now, toolsets=handles)))

    @property
    def generation(self) -> int:
        """A number that grows by one with every change of a tool, a name or a membership."""
        return self._now.generation

    @property
    def names(self) -> tuple[str, ...]:
        """The public names of the members, in order: the tools that can be called."""
        return tuple(self._now.members)

    @property
    def orphaned(self) -> tuple[ToolKey, ...]:
        """Tools that are remembered while their source is missing."""
        current = self._now
        return tuple(key for key in current.entries if key not in current.live)

    @property
    def defers(self) -> bool:
        """True if some tools are behind search."""
        return any(toolset.defers for toolset in self._now.toolsets.values())

    @property
    def chooses(self) -> bool:
        """True if tools are hidden by a pattern, switched off or behind search."""
        current = self._now
        return (
            bool(current.hidden)
            or self.defers
            or any(one.member is False for one in current.entries.values())
        )

    def handles(self) -> list[SourceHandle]:
        """The handles of the registered toolsets, in order."""
        return list(self._now.toolsets)

    def toolsets(self) -> Iterable[Toolset]:
        """The registered toolsets, in order."""
        return self._now.toolsets.values()

    def sources(self) -> Mapping[str, ToolSource]:
        """All mounted sources in the toolsets, by name."""
        return self._now.sources

    def name_of(self, key: ToolKey) -> str:
        """The public name of a remembered tool; empty if it has none."""
        entry = self._now.entries.get(key)
        return "" if entry is None else entry.name

    def absent(self, name: str) -> tuple[RegistryEntry, ToolSource] | None:
        """The remembered tool with this public name that is not listed now, and its mounted server.

        `None` for a tool that was removed from the members, that a policy hides, or that may be behind
        search.
        """
        current = self._now
        entry = next((one for one in current.entries.values() if one.name == name), None)
        if entry is None or entry.key in current.live or entry.member is False:
            return None
        if any(fnmatchcase(each, pattern) for pattern in current.hidden for each in (name, entry.asked)):
            return None
        source = None if entry.source in self.deferring() else current.sources.get(entry.source)
        return None if source is None else (entry, source)

    def deferring(self) -> frozenset[str]:
        """The names of the mounted servers all of whose tools are behind search."""
        current = self._now
        listing = (one for toolset in current.toolsets.values() for one in toolset.listing_sources())
        return frozenset(current.sources) - {source.source_name for source in listing}

    def members(self) -> dict[str, bool]:
        """Every present tool, and whether it is a member; hidden tools are left out."""
        current = self._now
        return {name: current.members.get(name) == key_of(one) for name, one in shown_in(current).items()}

    def bindings(self) -> list[ToolBinding]:
        """The members under their public names, in order."""
        return list(self._now.offered.values())

    def known_tools(self) -> KnownTools:
        """The tools that a name may refer to: every tool of the toolsets, and the sources of more tools."""
        sources = list(self.sources().values())
        grows = any(one.grows for one in self.toolsets())
        return KnownTools(self._everything, sources, is_part=self._is_part, verbs=self.unbound, grows=grows)

    def unbound(self) -> list[UnboundName]:
        """The names given to verbs of the toolsets, or to `hide`, that match no tool; see docs/names.md."""
        current = self._now
        inside = [found for toolset in current.toolsets.values() for found in toolset.unbound()]
        # A wrong name has raised already, unless the host said that the tool comes later.
        return [*inside, *(replace(one, kind="pattern") for one in self._missing(current.hidden))]

    def _missing(self, patterns: Collection[str]) -> list[UnboundName]:
        current, known = self._now, self.known_tools()
        # A pattern that matches only the name of a tool before a prefix or a rename hides nothing.
        left = self._left(patterns, current.entries.values())
        if not left:
            return []
        names = ToolNames(current.live.values())
        uses = [NameUse(one, "registry.hide") for one in left]
        before = {use.name: sorted(names.reached(use)) or names.moved(use) for use in uses}
        left = self._left([one for one in left if not before[one]], known.everything())
        return [
            known.missing(use, before[use.name] or names.near(use))
            for use in uses
            if before[use.name] or use.name in left
        ]

    def _left(self, patterns: Collection[str], tools: Iterable[RegistryEntry | ToolBinding]) -> list[str]:
        left = [one for one in patterns if one not in self._fitted]
        names = {name for tool in tools for name in (tool.name, tool.asked) if name} if left else ()
        self._fitted.update(one for one in left if any(fnmatchcase(name, one) for name in names))
        return [one for one in left if one not in self._fitted]

    def _everything(self) -> list[ToolBinding]:
        current = self._now
        inside = (one for toolset in current.toolsets.values() for one in toolset.everything())
        return [*current.live.values(), *inside]

    def view(self) -> ToolView:
        """The members as a frozen table, for a loop that the application owns.

        A call of a tool that has been removed from the registry is refused.
        """
        if self._now.sources:
            self._missing_names.take(self.unbound(), is_closed=False)
        resident = (self.gated(binding) for binding in self.bindings() if not binding.deferred)
        return ToolView(resident, known=self.known_tools())

    def gated(self, binding: ToolBinding) -> ToolBinding:
        """The binding of a tool of this registry; it refuses calls once the tool is no longer a member."""
        key = key_of(binding)
        member = self._now.members.get(binding.name)
        # The members' own key, of which there is one already.
        shared = key if member is None or member != key else member
        return replace(binding, gate=_Admission(self, shared, binding.gate))

    def admitting(self) -> list[ToolBinding]:
        """All members as `gated` makes them, in the same objects for as long as a tool stays."""
        return self._admitting.of(self.bindings())

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
        with self._changing() as current:
            self._put(compiled_anew(replace(current, toolsets={**current.toolsets, handle: toolset})))
        return handle

    def check(self, toolset: Toolset, *, instead_of: SourceHandle | None = None) -> None:
        """Check whether a toolset could be registered, or replace another one; nothing is changed.

        Raises:
            NameConflictError: it has a local tool or a mount whose name is taken.
        """
        current = self._now
        others = {other: one for other, one in current.toolsets.items() if other is not instead_of}
        wanted = replace(current, toolsets={**others, _handle_of(toolset): toolset})
        computed(compiled_anew(wanted), self._rules)

    def replace(self, handle: SourceHandle, toolset: Toolset) -> None:
        """Replace a toolset by another one; tools with the same id keep names and membership.

        Raises:
            StateError: the handle is not registered.
            NameConflictError: a name is taken; the old toolset stays.
        """
        with self._changing() as current:
            self._require(handle)
            self._put(compiled_anew(replace(current, toolsets={**current.toolsets, handle: toolset})))

    def remove(self, handle: SourceHandle) -> None:
        """Remove a toolset; decisions about its tools are kept until they return.

        Raises:
            StateError: the handle is not registered.
        """
        with self._changing() as current:
            self._require(handle)
            rest = {other: toolset for other, toolset in current.toolsets.items() if other is not handle}
            self._put(compiled_anew(replace(current, toolsets=rest)))

    def refresh(self) -> int:
        """Compile the toolsets again, such as after a server has listed other tools; return the generation.

        Raises:
            NameConflictError: two local tools have the same name now; the last current stays.
        """
        with self._changing() as current:
            self._put(compiled_anew(current))
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
        with self._changing() as current:
            return self._choose(current, members)

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Set the membership of some tools like `choose`, if nothing has changed since `generation`.

        Raises:
            StaleStateError: the registry has another generation now; nothing has changed.
            UnknownToolError: one of them does not exist, or is hidden; nothing has changed.
        """
        with self._changing() as current:
            _require_fresh(generation, current)
            return self._choose(current, members)

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
        with self._changing() as current:
            if current.toolsets:
                _require(self._missing(patterns), self.known_tools(), strict)
            self._put(replace(current, hidden=(*current.hidden, *patterns), chosen={}))
        return self.generation

    def snapshot(self) -> RegistryState:
        """The names and membership of all tools as data, to save, edit and apply."""
        current = self._now
        return RegistryState(current.generation, tuple(current.entries.values()))

    def apply_state(self, state: RegistryState) -> StateReport:
        """Set names and membership to a state, if nothing has changed since the state was taken.

        Tools missing from the state are switched off, and orphans missing from it are forgotten. Tools of the
        state whose source is missing become orphans.

        Raises:
            StaleStateError: the registry has another generation now; nothing has changed.
        """
        _require_fresh(state.generation, self._now)
        with self._changing() as current:
            _require_fresh(state.generation, current)
            entries = {entry.key: entry for entry in state.tools}
            names = {entry.name for entry in state.tools}
            for key in current.live.keys() - entries.keys():
                left = replace(current.entries[key], member=False)
                entries[key] = replace(left, name="") if left.name in names else left
            generation = current.generation + 1
            self._put(replace(current, entries=entries, generation=generation, parts={}, chosen={}))
            return StateReport(self._now.generation, _orphaned(state, self._now))

    def restore_state(self, state: RegistryState) -> StateReport:
        """Restore a saved state and its generation, on a cold start.

        Tools in the state get their names and membership back, now or when their source is registered; other
        tools stay unchanged. Snapshots taken before are invalid.
        """
        with self._changing() as current:
            kept = {key: entry for key, entry in current.entries.items() if key in current.live}
            entries = {**kept, **{entry.key: entry for entry in state.tools}}
            before = replace(
                current, entries=entries, live={}, generation=state.generation, parts={}, chosen={}
            )
            self._now = replace(computed(before, self._rules), generation=state.generation)
            return StateReport(state.generation, _orphaned(state, self._now))

    @contextmanager
    def _changing(self) -> Generator[RegistrySurface]:
        """Hold the lock; afterwards notify the listeners, outside of the lock, if something has changed."""
        with self._lock:
            before = self._now
            yield before
            after = self._now
        if not after.same_as(before):
            self._listeners.tell()

    def _choose(self, current: RegistrySurface, members: Mapping[Any, bool | None]) -> int:
        shown, entries = shown_in(current), dict(current.entries)
        for selector, member in members.items():
            key = key_of(shown[public_name_of(selector, shown)])
            entries[key] = replace(entries[key], member=member)
        self._put(replace(current, entries=entries, chosen={}))
        return self._now.generation

    def _put(self, wanted: RegistrySurface) -> None:
        """Compute a current and swap it in; without a difference the generation stays."""
        before = self._now
        after = computed(wanted, self._rules)
        if after.generation == before.generation:
            # Definitions may still differ; the generation does not count them.
            moved = not after.same_as(before)
            after = replace(after, generation=before.generation + moved)
        tell_altered(after, before)
        self._now = after

    def _require(self, handle: SourceHandle) -> None:
        if handle not in self._now.toolsets:
            raise StateError(f"source {handle.name!r} is not registered here, or was removed already")


def _handle_of(toolset: Toolset) -> SourceHandle:
    if not isinstance(toolset, Toolset):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"a registry takes toolsets, not {toolset!r}; write Toolset(…) around tools")
    inner = toolset
    while isinstance(inner, Transformed):
        [inner] = cast("list[Toolset]", [*inside(inner)])
    kind, names = type(inner).__name__, toolset.names()
    shown = ", ".join([*names[:3], "…"] if len(names) > 3 else names)
    return SourceHandle(toolset.name or (kind if type(inner) is not Toolset else f"Toolset({shown})"))


def _require_fresh(generation: int, current: RegistrySurface) -> None:
    if generation != current.generation:
        raise StaleStateError(
            f"the registry has changed since this snapshot ({generation} → {current.generation}); "
            "take a new snapshot and try again"
        )


def _orphaned(state: RegistryState, current: RegistrySurface) -> tuple[ToolKey, ...]:
    return tuple(entry.key for entry in state.tools if entry.key not in current.live)
