"""`RegistryState`: names and membership of every tool of a registry, as plain data for the next run.

As JSON it is an object with `format`, `version`, `generation` and `tools`. Unknown keys are ignored, so that
a later version may add some; a change that an older version could misread gets a higher `version`, which is
refused with that reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import InvalidStateError, UnknownToolError

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
        member: Whether the tool was switched on or off; with `None` its toolset decides.
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
        """Source and id."""
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
