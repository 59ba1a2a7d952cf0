"""The old path of `mcp_toolset.tools.export.requirement`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.tools.export.requirement", "ToolRequirement")
