"""The old path of `mcp_toolset.transports.http.app`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.transports.http.app", "bound_socket", "run_app")
