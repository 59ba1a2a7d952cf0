"""The names of the fixed tools of a deferred catalog, which `tools` defines."""

from __future__ import annotations

from typing import Final

FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""In the order they are listed."""
