"""What a registry remembers of each tool, and which tools are members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from mcp_toolset.catalog.registry.name_assignment import Assignment
from mcp_toolset.catalog.registry.state import RegistryEntry, ToolKey
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
