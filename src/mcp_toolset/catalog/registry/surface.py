"""`Surface`: what a registry serves at one generation, computed from what it remembers of each tool."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.registry.name_assignment import Assigned, Assignment, NameRules, assigned
from mcp_toolset.catalog.registry.state import RegistryEntry, ToolKey
from mcp_toolset.errors import NameConflictError
from mcp_toolset.tools.core.names import readable_name
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.made import distinct
from mcp_toolset.tools.view.view import ToolBinding

MAX_ORPHANS: Final = 10_000
"""Remembered tools without a source; the oldest without a decision are dropped first."""

Entries = Mapping[ToolKey, RegistryEntry]


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The members among some tools, by public name, in order.

    Attributes:
        keys: The source and id of each.
        bindings: The bindings to call.
    """

    keys: Mapping[str, ToolKey]
    bindings: Mapping[str, ToolBinding]


def chosen(live: Mapping[ToolKey, ToolBinding], entries: Entries, hidden: Collection[str]) -> Chosen:
    """The members among the tools of one source."""
    members = {
        key: binding
        for key, binding in live.items()
        if _is_member(binding, entries[key]) and not is_hidden(binding, hidden)
    }
    bindings = {one.name: one if one.on else replace(one, on=True) for one in members.values()}
    return Chosen({binding.name: key for key, binding in members.items()}, bindings)


def joined(parts: Mapping[str, Chosen], assignment: Assignment) -> Chosen:
    """The members of all sources, in the order of the tools."""
    keys: dict[str, ToolKey] = {}
    bindings: dict[str, ToolBinding] = {}
    for part in parts.values():
        keys.update(part.keys)
        bindings.update(part.bindings)
    if assignment.in_one_piece:
        return Chosen(keys, bindings)
    names = [one.name for one in assignment.live.values() if one.name in keys]
    return Chosen({name: keys[name] for name in names}, {name: bindings[name] for name in names})


def remembered(entries: Entries, live: Mapping[ToolKey, ToolBinding], fresh: Collection[str]) -> Entries:
    """What is remembered of every tool; a name that a live tool has is removed from orphans.

    Args:
        entries: What was remembered.
        live: The present tools.
        fresh: The sources whose tools may have other names than the entries say.
    """
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
    """Whether a policy hides a tool, by its public name or the name that its toolset gave it."""
    names = {binding.name, binding.asked or binding.name}
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _is_member(binding: ToolBinding, entry: RegistryEntry) -> bool:
    return binding.on if entry.member is None else entry.member


_log = logging.getLogger("mcp_toolset.registry")


@dataclass(frozen=True, eq=False, slots=True)
class SourceHandle:
    """One registered toolset, as a handle to replace or remove it by.

    Attributes:
        name: The toolset's name, for people; it need not be unique.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Surface:
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

    def same_as(self, other: Surface) -> bool:
        """Whether the two differ in nothing that a state or a caller can see."""
        mine = (self.toolsets, self.entries, self.members, self.hidden)
        return mine == (other.toolsets, other.entries, other.members, other.hidden) and self._same_keys(other)

    def _same_keys(self, other: Surface) -> bool:
        return self.parts.keys() == other.parts.keys() and all(
            part is other.parts[source] or part.live.keys() == other.parts[source].live.keys()
            for source, part in self.parts.items()
        )


def computed(wanted: Surface, given: NameRules) -> Surface:
    """The surface with names, members and bindings computed from its toolsets.

    Args:
        wanted: The surface to compute.
        given: The rules for names; nothing is reserved while no toolset is deferred.
    """
    toolsets = wanted.toolsets.values()
    rules = given if any(toolset.defers for toolset in toolsets) else replace(given, reserved=frozenset())
    assignment = assigned(wanted.compiled, wanted.entries, wanted.live.keys(), rules, wanted.parts)
    parts = assignment.parts
    fresh = {source for source, part in parts.items() if wanted.parts.get(source) is not part}
    entries = remembered(wanted.entries, assignment.live, fresh)
    by_source = {
        source: wanted.chosen[source]
        if source in wanted.chosen and source not in fresh
        else chosen(part.live, entries, wanted.hidden)
        for source, part in parts.items()
    }
    members = joined(by_source, assignment)
    return replace(
        wanted,
        entries=entries if entries is wanted.entries else MappingProxyType(dict(entries)),
        live=MappingProxyType(assignment.live),
        members=MappingProxyType(members.keys),
        offered=MappingProxyType(members.bindings),
        parts=parts,
        chosen=by_source,
    )


def compiled_anew(surface: Surface) -> Surface:
    """The surface with its toolsets' present tools, before names and members are computed."""
    toolsets = surface.toolsets.values()
    compiled = distinct([binding for toolset in toolsets for binding in toolset.bindings()])
    return replace(surface, sources=MappingProxyType(_sources_of(toolsets)), compiled=tuple(compiled))


def tell_altered(after: Surface, before: Surface) -> None:
    """Log each name that differs from the name that the host gave, when it is assigned."""
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


def shown_in(surface: Surface) -> dict[str, ToolBinding]:
    """The present tools, members or not, by public name, without hidden tools."""
    return {one.name: one for one in surface.live.values() if not is_hidden(one, surface.hidden)}
