"""The `ToolContext` of a call from the command line: progress and log messages go to stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_toolset.cli.display.output import note
from mcp_toolset.tools.core.call import ToolContext

__all__ = ["TerminalContext"]


class TerminalContext(ToolContext):
    """Shows progress and log messages; it cannot ask the user anything."""

    __slots__ = ()

    @property
    def wants_progress(self) -> bool:
        """Always true: progress is shown."""
        return True

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Write a line for each report."""
        share = f"{progress:g}/{total:g}" if total is not None else f"{progress:g}"
        note(f"[{share}] {message or ''}")

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Write a line for each message."""
        note(f"{level}: {f'{logger}: ' if logger else ''}{data}")

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Write a line for a server's log message; other notifications are ignored."""
        if method == "notifications/message" and params is not None:
            await self.log(str(params.get("level", "info")), params.get("data"), logger=params.get("logger"))
