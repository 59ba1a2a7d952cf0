"""`HiddenTextFilter`: middleware that removes hidden characters from results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import Block, ToolResult
from mcp_toolset.tools.text.hidden_text import cleaned, cleaned_metadata

__all__ = ["HiddenTextFilter"]


class HiddenTextFilter:
    """Removes invisible, bidirectional and control characters from results.

    It is optional, since a result may be data that must stay unchanged: a file to be written back, a log to
    be searched for escape sequences. Text blocks, the text of embedded resources and structured content are
    cleaned; images, audio and links are not.
    """

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call and clean its result."""
        result = await next()
        if not result.is_complete:
            return result
        wire = {**result.wire, "content": [_clean(block) for block in result.content]}
        if "structuredContent" in wire:
            wire["structuredContent"] = cleaned_metadata(wire["structuredContent"])
        return result if wire == result.wire else replace(result, wire=wire)


def _clean(block: Block) -> Block:
    resource: Any = block.get("resource")
    if isinstance(resource, dict):
        return {**block, "resource": _clean(cast("Block", resource))}
    text = block.get("text")
    return {**block, "text": cleaned(text)} if isinstance(text, str) else block
