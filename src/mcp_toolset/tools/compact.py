"""The old path of `mcp_toolset.tools.export.compact`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.tools.export.compact", "compact_listing", "help_text")
