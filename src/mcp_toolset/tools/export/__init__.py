"""A view's tools in the forms that model providers take, and the way back from what they answer.

`ToolView.export` gives tools, tool choice and the table back. `to_openai` and its like give the tools
alone, for names and schemas that need no way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp_toolset.tools.export.form import Provider
from mcp_toolset.tools.export.offering import export, plain_tools
from mcp_toolset.tools.export.table import Export

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding

__all__ = [
    "Export",
    "Provider",
    "export",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "to_openai_responses",
]


def to_openai(view: Mapping[str, ToolBinding]) -> list[dict[str, Any]]:
    """The `tools` of a chat completion request; see `ToolView.to_openai`."""
    return plain_tools(view, "openai")


def to_openai_responses(view: Mapping[str, ToolBinding]) -> list[dict[str, Any]]:
    """The `tools` of a Responses request; see `ToolView.to_openai_responses`."""
    return plain_tools(view, "openai_responses")


def to_anthropic(view: Mapping[str, ToolBinding]) -> list[dict[str, Any]]:
    """The `tools` of a Messages request; see `ToolView.to_anthropic`."""
    return plain_tools(view, "anthropic")


def to_gemini(view: Mapping[str, ToolBinding]) -> list[dict[str, Any]]:
    """The `tools` of a Gemini request; see `ToolView.to_gemini`."""
    return plain_tools(view, "gemini")
