"""An old path of names of `mcp_toolset`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset", "ToolRequirement")
