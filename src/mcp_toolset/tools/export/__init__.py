"""A view's tools in the forms that model providers take, and the way back from what they answer.

`ToolView.export` gives tools, tool choice and the table back. `to_openai` and its like give the tools
alone, for names and schemas that need no way back. The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._lazy import lazily

if TYPE_CHECKING:
    from mcp_toolset.tools.export.form import Provider
    from mcp_toolset.tools.export.offering import (
        export,
        to_anthropic,
        to_gemini,
        to_openai,
        to_openai_responses,
    )
    from mcp_toolset.tools.export.table import Export

__all__ = [
    "Export",
    "Provider",
    "export",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "to_openai_responses",
]

_HOMES: Final = {
    "Export": "tools.export.table",
    "Provider": "tools.export.form",
    "export": "tools.export.offering",
    "to_anthropic": "tools.export.offering",
    "to_gemini": "tools.export.offering",
    "to_openai": "tools.export.offering",
    "to_openai_responses": "tools.export.offering",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
