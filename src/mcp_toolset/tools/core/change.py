"""`ToolChange`: a tool that is not what it was when it was pinned, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_toolset.tools.core.definition import ToolDefinition

__all__ = ["ToolChange"]


@dataclass(frozen=True, slots=True)
class ToolChange:
    """One tool that differs from its pin.

    Attributes:
        name: The tool's own name at its source.
        held: Whether it is kept back until somebody accepts it; else it is served as it is now.
        pinned: The definition that was accepted, safe to show; `None` for a tool that is new.
        offered: The definition as it is now, without secrets of the mount; hostile until accepted.
        gained: What it can do now that it could not; empty when nothing was gained.
        differences: Where the two definitions differ, such as `inputSchema.properties.path`.
        reason: All that in one line, for people and models; the server's own words are not in it.
    """

    name: str
    held: bool
    pinned: ToolDefinition | None = field(repr=False)
    offered: ToolDefinition = field(repr=False)
    gained: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the server was pinned without it."""
        return self.pinned is None
