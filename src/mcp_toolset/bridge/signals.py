"""The old path of `mcp_toolset.concurrency.signals`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.concurrency.signals", "run_until_signal")
