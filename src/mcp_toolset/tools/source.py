"""The old path of `mcp_toolset.tools.core.source`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.tools.core.source", "SourceStatus")
