"""Tools that change what this server lists or holds, so that a client can see that it is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_toolset import (
    DynamicToolset,
    Prompts,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    tool,
)

from .reading import EverythingResources

DYNAMIC = "test_dynamic"


class Appearing(ToolProvider):
    """One tool that is there half of the time."""

    def __init__(self) -> None:
        self.there = False

    async def list_definitions(self) -> Iterable[ToolDefinition]:
        """The tool, while it is there."""
        return [ToolDefinition(f"{DYNAMIC}_tool", "A tool that comes and goes.")] if self.there else []

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Say that it ran."""
        return ToolResult.of_text("dynamic")


def changing_tools(
    prompts: Prompts, resources: EverythingResources
) -> tuple[DynamicToolset, list[Tool[..., Any]]]:
    """The tool that comes and goes, and the tools that make something change."""
    appearing = Appearing()
    dynamic = DynamicToolset(appearing, name="dynamic")

    @tool
    async def test_trigger_tool_change() -> str:
        """Add a tool to this server, or take it away again."""
        appearing.there = not appearing.there
        await dynamic.refresh()
        return "tool list changed"

    @tool
    async def test_trigger_prompt_change() -> str:
        """Add a prompt to this server, or take it away again."""
        listed = [prompt.name for prompt in await prompts.list_prompts()]
        if f"{DYNAMIC}_prompt" in listed:
            prompts.remove(f"{DYNAMIC}_prompt")
        else:
            prompts.add(name=f"{DYNAMIC}_prompt")(_dynamic)
        return "prompt list changed"

    @tool
    async def test_touch_resource() -> str:
        """Change the resource that clients can subscribe to."""
        resources.touch()
        return "resource changed"

    return dynamic, [test_trigger_tool_change, test_trigger_prompt_change, test_touch_resource]


def _dynamic() -> str:
    """A prompt that comes and goes."""
    return "dynamic"
