"""`Misconfigured`: the mount of a server whose configuration entry cannot be used; it has no tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.abc

from mcp_toolset.tools.core.source import SourceStatus, ToolSource
from mcp_toolset.tools.declare.function import Tool
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.view import ToolBinding


class Misconfigured(Toolset):
    """A mount without tools whose status says what is wrong with the entry and how to correct it."""

    def __init__(self, name: str, reason: str) -> None:
        """Show `reason` as the status of the server `name`."""
        super().__init__(name=name)
        self.source_name = name
        self.status = SourceStatus("misconfigured", reason)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Never called: a new configuration replaces this object."""
        return lambda: None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait until cancelled."""
        task_status.started()
        await anyio.sleep_forever()

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """Do nothing."""
        return iter(())

    def sources(self) -> list[ToolSource]:
        """The mount itself."""
        return [self]

    def bindings(self) -> list[ToolBinding]:
        """Do nothing."""
        return []
