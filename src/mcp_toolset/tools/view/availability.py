"""`ToolAvailability`: which tools of a toolset a model may see in one turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcp_toolset.tools.binding.selector import ToolGroup, ToolSelector, resolve_all

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding

__all__ = ["ToolAvailability", "ToolSelector"]


@dataclass(frozen=True, slots=True)
class ToolAvailability:
    """A selection of tools, resolved against a toolset before anything is sent to a model.

    A selector is a public name, a `Tool`, or a nested toolset, which selects all its tools, on or off.
    """

    kind: Literal["default", "all", "only", "default_plus"] = "default"
    selectors: tuple[ToolSelector | ToolGroup, ...] = ()

    @classmethod
    def default(cls) -> ToolAvailability:
        """Every tool that is on."""
        return cls()

    @classmethod
    def all(cls) -> ToolAvailability:
        """Every tool, on or off."""
        return cls("all")

    @classmethod
    def only(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Only these tools, on or off."""
        return cls("only", selectors)

    @classmethod
    def default_plus(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Every tool that is on, and then these, each once."""
        return cls("default_plus", selectors)

    def resolve(self, table: Mapping[str, ToolBinding]) -> list[str]:
        """The available public names, given all tools.

        Raises:
            UnknownToolError: a selector matches no tool; the message has close matches.
            DefinitionError: a selector matches more than one tool, or is not a selector.
        """
        picked = resolve_all(self.selectors, table)
        if self.kind == "all":
            return list(table)
        if self.kind == "only":
            return picked
        on = [name for name, binding in table.items() if binding.on]
        return list(dict.fromkeys([*on, *picked]))
