"""`RegistryState`: names and membership of every tool, as plain data; how names are assigned.

As JSON it is an object with `format`, `version`, `generation` and `tools`. Unknown keys are ignored, so that
a later version may add some; a change that an older version could misread gets a higher `version`, which is
refused with that reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import InvalidStateError, NameConflictError, UnknownToolError
from mcp_toolset.tools.definition import MAX_NAME_LENGTH, public_name, qualified, readable_name
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.toolset import check_id
from mcp_toolset.tools.view import ToolBinding, by_source, conflict_message, same

FORMAT: Final = "mcp-toolset/state"
VERSION: Final = 1

_Item = TypeVar("_Item")


class ToolKey(NamedTuple):
    """The key of a tool, whatever its name: its source, and its id there."""

    source: str
    id: str


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """The stored facts about one tool, also while its source is missing.

    Attributes:
        source: The name of the mounted server or provider; empty for local tools.
        id: The tool's id there: for a mounted tool its name at the server.
        name: Its public name; empty if another tool has taken it meanwhile.
        asked: The name that the toolset requested when the tool got its public name.
        member: True if the tool was switched on, False if off; with `None` its toolset decides.
    """

    source: str
    id: str
    name: str = ""
    asked: str = ""
    member: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", self.asked or self.name)

    @property
    def key(self) -> ToolKey:
        return ToolKey(self.source, self.id)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """The names and membership of all tools at one generation.

    Attributes:
        generation: The generation that it was taken at.
        tools: Every tool, live or not; ids and names are unique.
    """

    generation: int
    tools: tuple[RegistryEntry, ...] = ()

    def __post_init__(self) -> None:
        """Refuse data that cannot be one surface.

        Raises:
            InvalidStateError: a negative generation, an empty id, or a duplicate id or name.
        """
        if self.generation < 0:
            raise InvalidStateError(f"a state cannot have the generation {self.generation}")
        if any(not entry.id for entry in self.tools):
            raise InvalidStateError("a state has a tool without an id")
        twice = _twice(entry.key for entry in self.tools)
        if twice is not None:
            raise InvalidStateError(f"a state has the tool {twice.id!r} of {twice.source!r} twice")
        name = _twice(entry.name for entry in self.tools if entry.name)
        if name is not None:
            raise InvalidStateError(f"a state has two tools named {name!r}")

    def choosing(self, members: Mapping[str, bool | None]) -> RegistryState:
        """This state with some tools, by public name, made members or removed.

        Raises:
            UnknownToolError: the state has no tool of that name.
        """
        for name in members.keys() - {entry.name for entry in self.tools}:
            raise UnknownToolError(name)
        changed = (
            replace(entry, member=members[entry.name]) if entry.name in members else entry
            for entry in self.tools
        )
        return RegistryState(self.generation, tuple(changed))

    def to_json(self) -> str:
        """The state as JSON, one tool to a line."""
        head = {"format": FORMAT, "version": VERSION, "generation": self.generation}
        lines = ",\n    ".join(json.dumps(_data_of(entry), ensure_ascii=True) for entry in self.tools)
        tools = f"[\n    {lines}\n  ]" if lines else "[]"
        fields = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in head.items())
        return f'{{\n{fields}  "tools": {tools}\n}}\n'

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the state") -> RegistryState:
        """The state that `to_json` wrote, by this version or another.

        Raises:
            InvalidStateError: it is not JSON, of another format, or of a later version that cannot be
                read; the message starts with `where`.
        """
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as fault:
            reason = f"line {fault.lineno}" if isinstance(fault, json.JSONDecodeError) else "unreadable"
            raise _invalid(where, f"it is no JSON ({reason})") from None
        _check_format(data, where)
        # Only servers with a state file need the models, which take longer to import than all of this.
        from mcp_toolset.catalog.registry.state_data import generation_and_entries

        try:
            generation, entries = generation_and_entries(data)
            return cls(generation, tuple(RegistryEntry(**entry) for entry in entries))
        except (ValueError, InvalidStateError) as fault:
            raise _invalid(where, str(fault)) from None


def _check_format(data: Any, where: str) -> None:
    table = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if table.get("format") != FORMAT:
        raise _invalid(where, f'it is not a saved state ("format" is not "{FORMAT}")')
    version = table.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _invalid(where, '"version" is no positive number')
    if version > VERSION:
        raise InvalidStateError(
            f"{where}: it was written by a later version (state {version}, this one reads {VERSION}); "
            "update mcp-toolset, or start with another file"
        )


def _invalid(where: str, reason: str) -> InvalidStateError:
    return InvalidStateError(
        f"{where}: not a usable state: {reason}; move it away to start anew, or restore a copy"
    )


def _data_of(entry: RegistryEntry) -> dict[str, Any]:
    data: dict[str, Any] = {"source": entry.source, "id": entry.id, "name": entry.name}
    if entry.asked != entry.name:
        data["asked"] = entry.asked
    if entry.member is not None:
        data["member"] = entry.member
    return data


def _twice(items: Iterable[_Item]) -> _Item | None:
    seen: set[_Item] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


@dataclass(frozen=True, slots=True)
class NameRules:
    """The rules for names."""

    reserved: frozenset[str] = frozenset()  # names of the server's own tools
    limit: int = MAX_NAME_LENGTH  # the largest length of a name


def key_of(binding: ToolBinding) -> ToolKey:
    return ToolKey(binding.source, binding.tool_id)


@dataclass(frozen=True, eq=False, slots=True)
class Assigned:
    """The tools of one source under their public names."""

    bindings: Sequence[ToolBinding]  # the tools as the toolsets have them
    known: Sequence[ToolBinding]  # the same with an id each
    live: Mapping[ToolKey, ToolBinding]  # the same under their public names, by key
    names: frozenset[str]  # their public names
    wanted: frozenset[str]  # the names that their toolsets gave them
    stands: bool  # whether they keep these names as long as they are remembered and no local tool takes one


def assigned(
    bindings: Sequence[ToolBinding],
    remembered: Mapping[ToolKey, RegistryEntry],
    live: Collection[ToolKey],
    rules: NameRules,
    before: Mapping[str, Assigned] = MappingProxyType({}),
) -> tuple[Mapping[str, Assigned], Mapping[ToolKey, ToolBinding], bool]:
    """The bindings under unique public names and ids; unchanged parts of `before` are reused.

    Returns the parts by source, in the order in which the sources come first; all tools, in their order; and
    true if the tools of each source are consecutive.
    """
    grouped, pieces = _grouped(bindings)
    kept = {
        source: before[source]
        for source, tools in grouped.items()
        if source in before and same(before[source].bindings, tools)
    }
    known = {
        source: kept[source].known if source in kept else _identified(tools, before.get(source))
        for source, tools in grouped.items()
    }
    names = {key_of(binding): name for name, binding in _host_names(known.get("", ()), rules).items()}
    fixed = {*names.values(), *rules.reserved}
    standing = {source: part for source, part in kept.items() if source and part.stands}
    if any(not part.names.isdisjoint(fixed) for part in standing.values()):
        standing = {}
    mounted = _others(known, standing)
    if any(_has_name(one, remembered, live) and remembered[key_of(one)].name in fixed for one in mounted):
        standing, mounted = {}, _others(known, {})
    taken = fixed.union(*(part.names for part in standing.values()))
    wanted = _names_of(known, kept)
    for binding in _in_turn(mounted, remembered, live):
        name = _name_for(binding, remembered.get(key_of(binding)), taken, rules, wanted)
        names[key_of(binding)] = name
        taken.add(name)
    # The names of local tools depend on local tools only.
    over = {**standing, **{source: part for source, part in kept.items() if not source}}
    parts = {
        source: over[source] if source in over else _part(tools, known[source], names, before.get(source))
        for source, tools in grouped.items()
    }
    return parts, _in_order(bindings, parts, pieces), pieces == len(parts)


def _grouped(bindings: Iterable[ToolBinding]) -> tuple[dict[str, list[ToolBinding]], int]:
    grouped: dict[str, list[ToolBinding]] = {}
    pieces = 0
    for source, run in by_source(bindings):
        pieces += 1
        grouped.setdefault(source, []).extend(run)
    return grouped, pieces


def _others(known: Mapping[str, Sequence[ToolBinding]], standing: Container[str]) -> list[ToolBinding]:
    return [one for source, tools in known.items() if source and source not in standing for one in tools]


def _has_name(
    binding: ToolBinding, remembered: Mapping[ToolKey, RegistryEntry], live: Collection[ToolKey]
) -> bool:
    key = key_of(binding)
    entry = remembered.get(key)
    return entry is not None and _keeps(entry, binding) and key in live


def _names_of(known: Mapping[str, Sequence[ToolBinding]], kept: Mapping[str, Assigned]) -> AbstractSet[str]:
    return frozenset[str]().union(
        *(
            kept[source].wanted if source in kept else {one.name for one in tools}
            for source, tools in known.items()
        )
    )


def _part(
    bindings: Sequence[ToolBinding],
    known: Sequence[ToolBinding],
    names: Mapping[ToolKey, str],
    before: Assigned | None,
) -> Assigned:
    made = _by_id(before.known, before.live.values()) if before else {}
    live = {(key := key_of(one)): _named(one, names[key], made.get(id(one))) for one in known}
    return Assigned(
        bindings,
        known,
        MappingProxyType(live),
        frozenset(one.name for one in live.values()),
        frozenset(one.name for one in known),
        not any(one.asked for one in known),
    )


def _in_order(
    bindings: Iterable[ToolBinding], parts: Mapping[str, Assigned], pieces: int
) -> Mapping[ToolKey, ToolBinding]:
    live: dict[ToolKey, ToolBinding] = {}
    if pieces == len(parts):
        for part in parts.values():
            live.update(part.live)
        return live
    each = {source: iter(part.live.items()) for source, part in parts.items()}
    return dict(next(each[binding.source]) for binding in bindings)


def _in_turn(
    bindings: Sequence[ToolBinding], remembered: Mapping[ToolKey, RegistryEntry], live: Collection[ToolKey]
) -> list[ToolBinding]:
    """The order in which tools choose names: those that have one, those that had one, then as listed."""
    places = {source: place for place, source in enumerate(dict.fromkeys(one.source for one in bindings))}

    def turn(binding: ToolBinding) -> tuple[int, int, bool, str]:
        key = key_of(binding)
        entry = remembered.get(key)
        is_known = entry is not None and _keeps(entry, binding)
        rank = 2 if not is_known else 0 if key in live else 1
        # The order of an upstream's list decides nothing.
        return rank, places[binding.source], binding.definition.name != binding.name, key.id

    return sorted(bindings, key=turn)


def _name_for(
    binding: ToolBinding,
    entry: RegistryEntry | None,
    taken: Collection[str],
    rules: NameRules,
    wanted: Collection[str],
) -> str:
    if entry is not None and _keeps(entry, binding) and len(entry.name) <= rules.limit:
        if entry.name not in taken:
            return entry.name
    plain = readable_name(binding.name, binding.definition.name)
    if plain is not None and len(plain) <= rules.limit and plain not in taken and plain not in wanted:
        return plain
    name = public_name(binding.name, limit=rules.limit)
    return name if name not in taken else _told_apart(binding, taken, rules.limit)


def _keeps(entry: RegistryEntry, binding: ToolBinding) -> bool:
    """True if a remembered name is still valid: not if the host has renamed the tool since."""
    return bool(entry.name) and entry.asked == binding.name


def _told_apart(binding: ToolBinding, taken: Collection[str], limit: int) -> str:
    stem = binding.name if binding.name.startswith(binding.source) else f"{binding.source}_{binding.name}"
    stem, identity = public_name(stem), f"{binding.source}\n{binding.tool_id}"
    name = qualified(stem, identity, limit)
    while name in taken:
        identity = f"{identity}\n"
        name = qualified(stem, identity, limit)
    return name


def _named(binding: ToolBinding, name: str, made: ToolBinding | None) -> ToolBinding:
    if name == binding.name:
        return binding
    if made is not None and made.name == name:
        return made
    return replace(binding, name=name, asked=binding.name)


def _by_id(ones: Sequence[ToolBinding], made: Iterable[ToolBinding]) -> dict[int, ToolBinding]:
    """A cache of what was made from each tool; valid while `ones` are referenced."""
    return dict(zip(map(id, ones), made, strict=True))


def _host_names(bindings: Iterable[ToolBinding], rules: NameRules) -> dict[str, ToolBinding]:
    held: dict[str, ToolBinding] = {}
    for binding in bindings:
        if binding.source:
            continue
        if not binding.name:
            raise NameConflictError(f"{binding.place or 'a tool'} has an empty name; give it one")
        name = public_name(binding.name, limit=rules.limit)
        if held.setdefault(name, binding) is not binding:
            raise NameConflictError(conflict_message(held[name], binding))
        if name in rules.reserved:
            raise NameConflictError(
                f"{binding.place or 'a tool'} is named {name!r}, as a tool of the deferred catalog; rename it"
            )
    return held


def _identified(bindings: Sequence[ToolBinding], before: Assigned | None) -> list[ToolBinding]:
    made = _by_id(before.bindings, before.known) if before else {}
    groups: dict[ToolKey, list[ToolBinding]] = defaultdict(list)
    for binding in bindings:
        groups[_own_key(binding)].append(binding)
    for key, group in groups.items():
        if len(group) > 1:
            check_id(key.id, group)
    used = {key for key, group in groups.items() if len(group) == 1}
    return [_with_id(one, len(groups[_own_key(one)]) > 1, used, made.get(id(one))) for one in bindings]


def _with_id(
    binding: ToolBinding, is_one_of_several: bool, used: set[ToolKey], made: ToolBinding | None
) -> ToolBinding:
    key = _own_key(binding)
    if is_one_of_several:
        key = key._replace(id=f"{key.id}@{encodable(binding.name)}")
        while key in used:
            key = key._replace(id=f"{key.id}@")
        used.add(key)
    if key.id == binding.tool_id:
        return binding
    return made if made is not None and made.tool_id == key.id else replace(binding, tool_id=key.id)


def _own_key(binding: ToolBinding) -> ToolKey:
    return ToolKey(binding.source, encodable(binding.own_id))
