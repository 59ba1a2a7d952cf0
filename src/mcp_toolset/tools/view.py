"""`ToolView`: a flat, frozen table from public name to binding, compiled once from a toolset.

Nothing is undone by parsing names at call time: the table is the way back (design, decision 2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from mcp_toolset.errors import NameConflictError, UnknownToolError
from mcp_toolset.tools.availability import ToolAvailability
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.validation import SchemaCheck

Executor = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]
"""What runs a call once everything before it has agreed."""

Gate = Callable[[ToolCall, ToolContext], None]
"""Refuses a call by raising; runs before anything else and never waits (decision 7: fails closed)."""

Redirect = Callable[[ToolCall, ToolContext], ToolCall]
"""Turns a call of a calling tool (`call_tool`) into the call that it stands for."""


@dataclass(frozen=True, slots=True)
class ToolBinding:
    """One tool under its public name, bound to what runs it.

    Attributes:
        name: The public name, unique within a view.
        definition: What the tool says of itself, under its own name.
        execute: What runs it.
        source: The name of the source it came from: a mount's name, or empty for local tools.
        place: Where it was defined, for messages.
        on: Whether it is part of the default availability (L10).
        deferred: Whether it is found by search instead of being listed.
        gate: An extra condition on every call, such as a live grant.
        redirect: Set on tools that only stand for a call of another tool.
        manual: Whether its calls wait for the application's result (A6).
        timeout: Seconds that one call may take, if the tool says so (A11).
        tool_id: A stable id apart from the public name, where the source has one (H2).
        arguments: The compiled input schema.
        output: The compiled output schema, if the tool promises one.
    """

    name: str
    definition: ToolDefinition
    execute: Executor
    arguments: SchemaCheck
    output: SchemaCheck | None = None
    source: str = ""
    place: str = ""
    on: bool = True
    deferred: bool = False
    gate: Gate | None = None
    redirect: Redirect | None = None
    manual: bool = False
    timeout: float | None = None
    tool_id: str = ""

    def to_wire(self) -> dict[str, Any]:
        """The binding as a `tools/list` entry."""
        return self.definition.to_wire(self.name)


class ToolView(Mapping[str, ToolBinding]):
    """A flat, frozen table of tools by public name, in the order they are listed."""

    __slots__ = ("_table",)

    def __init__(self, bindings: Iterable[ToolBinding]) -> None:
        """Freeze `bindings`.

        Raises:
            NameConflictError: two of them have one name (L28); the message names both places.
        """
        table: dict[str, ToolBinding] = {}
        for binding in bindings:
            other = table.setdefault(binding.name, binding)
            if other is not binding:
                raise NameConflictError(conflict_message(other, binding))
        self._table = MappingProxyType(table)

    def __getitem__(self, name: str) -> ToolBinding:
        """The binding of `name`; `UnknownToolError` (a `KeyError` to no one) when absent (L8)."""
        binding = self._table.get(name)
        if binding is None:
            raise UnknownToolError(name)
        return binding

    def get(self, name: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The binding of `name`, or `default`."""
        return self._table.get(name, default)

    def __contains__(self, name: object) -> bool:
        """Whether a tool of this name is in the view."""
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        """The public names, in order."""
        return iter(self._table)

    def __len__(self) -> int:
        """How many tools there are."""
        return len(self._table)

    def __repr__(self) -> str:
        """The names, for people."""
        return f"ToolView({', '.join(self._table)})"

    def select(self, availability: ToolAvailability) -> Self:
        """The part of the view that `availability` makes available, in its order (L10, L13).

        Raises:
            UnknownToolError: a selector names a tool that is not here.
        """
        names = availability.resolve({name: binding.on for name, binding in self._table.items()})
        return type(self)(self._table[name] for name in names)

    def definitions(self) -> list[ToolDefinition]:
        """The definitions, in order."""
        return [binding.definition for binding in self._table.values()]

    def to_openai(self) -> list[dict[str, Any]]:
        """The tools in the form of OpenAI's chat completions (O7)."""
        from mcp_toolset.tools.export import to_openai

        return to_openai(self)


def conflict_message(first: ToolBinding, second: ToolBinding) -> str:
    """Both places of a name that is taken twice, and how to mend it (L28)."""
    places = f"{first.place or 'one toolset'} and {second.place or 'another'}"
    mend = "rename one or give a toolset a prefix with .prefixed()"
    return f"two tools are named {first.name!r}: {places}; {mend}"
