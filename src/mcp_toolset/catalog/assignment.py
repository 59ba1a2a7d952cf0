"""Who is called what: one public name for every tool of every source (H9, H23, F16).

The host's own tools are named by the host, so that two of one name are its mistake and an error. What
an upstream lists never raises and never takes a name from anybody: a tool that has a name keeps it
for as long as it is remembered, and a newcomer whose name is taken is told apart by a digest of its
source and id. That depends on no other tool, so it is the same every time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_toolset.catalog.state import ToolEntry, ToolKey
from mcp_toolset.errors import NameConflictError
from mcp_toolset.tools.names import MAX_NAME_LENGTH, public_name, qualified, readable_name
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.stable_id import check_id
from mcp_toolset.tools.view import ToolBinding, conflict_message


@dataclass(frozen=True, slots=True)
class NameRules:
    """What names have to keep to.

    Attributes:
        reserved: Names that belong to the server itself.
        limit: Characters that a name may have.
    """

    reserved: frozenset[str] = frozenset()
    limit: int = MAX_NAME_LENGTH


def key_of(binding: ToolBinding) -> ToolKey:
    """What an assigned tool is known by."""
    return ToolKey(binding.source, binding.tool_id)


def assigned(
    bindings: Iterable[ToolBinding],
    remembered: Mapping[ToolKey, ToolEntry],
    live: Collection[ToolKey],
    rules: NameRules,
) -> list[ToolBinding]:
    """The bindings under unique public names and ids, in their order.

    Args:
        bindings: Everything that is there.
        remembered: What is known of tools that are there or were.
        live: The tools that have held their names until now; they go before those that return.
        rules: What names have to keep to.

    Raises:
        NameConflictError: two tools of the host have one name or one id, or one has a reserved name.
    """
    known = _identified(list(bindings))
    holders = _host_names(known, rules)
    names = {key_of(binding): name for name, binding in holders.items()}
    taken = {*holders, *rules.reserved}
    mounted = [binding for binding in known if binding.source]
    wanted = {binding.name for binding in known}
    for binding in sorted(mounted, key=_Turn(mounted, remembered, live)):
        name = _name_for(binding, remembered.get(key_of(binding)), taken, rules, wanted)
        names[key_of(binding)] = name
        taken.add(name)
    return [_named(binding, names[key_of(binding)]) for binding in known]


class _Turn:
    """Who chooses a name first: whoever has it, whoever had it, then as the host has put the sources."""

    def __init__(
        self,
        bindings: Sequence[ToolBinding],
        remembered: Mapping[ToolKey, ToolEntry],
        live: Collection[ToolKey],
    ) -> None:
        self._places = {
            source: place for place, source in enumerate(dict.fromkeys(one.source for one in bindings))
        }
        self._remembered = remembered
        self._live = live

    def __call__(self, binding: ToolBinding) -> tuple[int, int, bool, str]:
        key = key_of(binding)
        entry = self._remembered.get(key)
        is_known = entry is not None and _keeps(entry, binding)
        rank = 2 if not is_known else 0 if key in self._live else 1
        own = binding.definition.name
        # The order of an upstream's list is its own affair and decides nothing.
        return rank, self._places[binding.source], own != binding.name, key.id


def _name_for(
    binding: ToolBinding,
    entry: ToolEntry | None,
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


def _keeps(entry: ToolEntry, binding: ToolBinding) -> bool:
    """Whether a remembered name still stands: not if the host has renamed the tool since."""
    return bool(entry.name) and entry.asked == binding.name


def _told_apart(binding: ToolBinding, taken: Collection[str], limit: int) -> str:
    stem = binding.name if binding.name.startswith(binding.source) else f"{binding.source}_{binding.name}"
    stem, identity = public_name(stem), f"{binding.source}\n{binding.tool_id}"
    name = qualified(stem, identity, limit)
    while name in taken:
        identity = f"{identity}\n"
        name = qualified(stem, identity, limit)
    return name


def _named(binding: ToolBinding, name: str) -> ToolBinding:
    if name == binding.name:
        return binding
    return replace(binding, name=name, asked=binding.name)


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


def _identified(bindings: Sequence[ToolBinding]) -> list[ToolBinding]:
    """The bindings with an id each; one tool that is there under several names is each of them."""
    groups: dict[ToolKey, list[ToolBinding]] = defaultdict(list)
    for binding in bindings:
        groups[_own_key(binding)].append(binding)
    for key, group in groups.items():
        if len(group) > 1:
            check_id(key.id, group)
    used = {key for key, group in groups.items() if len(group) == 1}
    return [_with_id(one, len(groups[_own_key(one)]) > 1, used) for one in bindings]


def _with_id(binding: ToolBinding, is_one_of_several: bool, used: set[ToolKey]) -> ToolBinding:
    key = _own_key(binding)
    if is_one_of_several:
        key = key._replace(id=f"{key.id}@{encodable(binding.name)}")
        while key in used:
            key = key._replace(id=f"{key.id}@")
        used.add(key)
    return binding if key.id == binding.tool_id else replace(binding, tool_id=key.id)


def _own_key(binding: ToolBinding) -> ToolKey:
    return ToolKey(binding.source, encodable(binding.tool_id or binding.definition.name))
