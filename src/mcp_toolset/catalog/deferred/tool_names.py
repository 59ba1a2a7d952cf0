"""The names of the tools that stand in front of a deferred catalog; what they do is in `tools`."""

from __future__ import annotations

from typing import Final

FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""In the order they are listed."""
