"""`ToolAvailability`: which tools of a toolset a model may see in one turn (L10, L13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mcp_toolset.errors import UnknownToolError

ToolSelector = str
"""A tool's public name. Class toolsets hand these out as attributes, so that editors know them."""


@dataclass(frozen=True, slots=True)
class ToolAvailability:
    """A choice of tools, resolved against a toolset before anything is sent."""

    kind: Literal["default", "all", "only", "default_plus"] = "default"
    selectors: tuple[ToolSelector, ...] = ()

    @classmethod
    def default(cls) -> ToolAvailability:
        """Every tool that is on."""
        return cls()

    @classmethod
    def all(cls) -> ToolAvailability:
        """Every tool, on or off."""
        return cls("all")

    @classmethod
    def only(cls, *selectors: ToolSelector) -> ToolAvailability:
        """Just these, on or off."""
        return cls("only", selectors)

    @classmethod
    def default_plus(cls, *selectors: ToolSelector) -> ToolAvailability:
        """Every tool that is on, then these, each once."""
        return cls("default_plus", selectors)

    def resolve(self, switches: Mapping[str, bool]) -> list[str]:
        """The names that are available, given every name and whether it is on.

        Raises:
            UnknownToolError: a selector names none of them.
        """
        for selector in self.selectors:
            if selector not in switches:
                raise UnknownToolError(selector)
        if self.kind == "all":
            return list(switches)
        if self.kind == "only":
            return list(dict.fromkeys(self.selectors))
        on = [name for name, is_on in switches.items() if is_on]
        return list(dict.fromkeys([*on, *self.selectors]))
