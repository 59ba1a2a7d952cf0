"""`ToolChange`: a tool whose definition differs from its pin, and whether it is quarantined."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_toolset.tools.core.definition import ToolDefinition

__all__ = ["ToolChange"]


@dataclass(frozen=True, slots=True)
class ToolChange:
    """One tool that differs from its pin.

    Attributes:
        name: The tool's original name at its source.
        held: Whether it is quarantined until a person accepts it; else it is served with the new definition.
        pinned: The definition that was accepted, safe to show; `None` for a tool that is new.
        offered: The present definition, without the mount's secrets; hostile until accepted.
        gained: What the new definition can do that the old could not; empty if nothing.
        differences: Where the two definitions differ, such as `inputSchema.properties.path`.
        reason: All of that in one line, for people and models; it quotes nothing from the server.
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
        """Whether the tool is new on a server that was pinned without it."""
        return self.pinned is None
