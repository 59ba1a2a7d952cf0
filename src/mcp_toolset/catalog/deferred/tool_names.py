"""The names of the fixed tools of a deferred catalog, which `tools` defines, and of those that run code."""

from __future__ import annotations

from typing import Final

FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""In the order they are listed."""

CODE_TOOLS: Final = ("run_code", "run_read_only_code")
"""Beside them where the server runs code."""
