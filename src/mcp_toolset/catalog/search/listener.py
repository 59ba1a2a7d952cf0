"""`SearchListener`: what is told of searches, and moves hits up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mcp_toolset.tools.core.call import ToolContext


class SearchListener(Protocol):
    """Told of searches, of what callers do with their hits, and asked before each search."""

    def bonus(self, context: ToolContext, query: str) -> Mapping[str, float]:
        """What is added to the scores of tools, by key; empty for nothing."""
        ...

    def searched(self, context: ToolContext, query: str, tools: Sequence[str]) -> None:
        """A search has found these tools."""
        ...

    def resolved(self, context: ToolContext, tool: str) -> None:
        """A tool was granted."""
        ...

    def called(self, context: ToolContext, tool: str) -> None:
        """A call of a granted tool has succeeded."""
        ...
