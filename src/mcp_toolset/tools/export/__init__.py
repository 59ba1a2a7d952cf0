"""A view's tools in the forms of model providers, and the decoding of the calls in their answers.

`ToolView.export` gives the tools, the tool choice and the table for decoding. `to_openai` and the other three
give the tools only, for names and schemas that need no decoding. The names below are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._lazy import lazily

if TYPE_CHECKING:
    from mcp_toolset.tools.export.offering import (
        export,
        to_anthropic,
        to_gemini,
        to_openai,
        to_openai_responses,
    )
    from mcp_toolset.tools.export.table import Export, Provider

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
    "Provider": "tools.export.table",
    "export": "tools.export.offering",
    "to_anthropic": "tools.export.offering",
    "to_gemini": "tools.export.offering",
    "to_openai": "tools.export.offering",
    "to_openai_responses": "tools.export.offering",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
