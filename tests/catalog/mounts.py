"""Toolsets that stand for mounted servers, with a list that a test can change; nothing is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.calling import listed

from mcp_toolset import Tool, ToolBinding, ToolCall, ToolContext, ToolDefinition, ToolResult, Toolset
from mcp_toolset.tools.definition import public_name


class Mount(Toolset):
    """What a server named `source` lists; the result of a call says which tool of which server ran."""

    def __init__(self, source: str, *tools: str) -> None:
        self.source = source
        self.listed = list(tools)
        super().__init__(name=source)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        return iter(())

    def bindings(self) -> list[ToolBinding]:
        return [self._bound(name) for name in self.listed]

    def _bound(self, name: str) -> ToolBinding:
        definition = ToolDefinition(name)

        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            return ToolResult.of_text(f"{self.source}/{name}")

        return listed(
            definition, execute, name=public_name(name), source=self.source, place=f"server {self.source!r}"
        )
