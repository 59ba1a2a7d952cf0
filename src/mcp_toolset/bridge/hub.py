"""The old path of `mcp_toolset.hub.toolset`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.hub.toolset", "toolset_from_config")
