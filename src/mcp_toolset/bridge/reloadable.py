"""`Reloadable`: a toolset that can be given another configuration; known without loading what does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.toolset import Toolset

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_toolset.bridge.reload import Reloads
    from mcp_toolset.config import HubConfig

PATIENCE: Final = 10.0
"""Seconds that a reload waits for servers that are starting; what is not there by then joins later."""


@runtime_checkable
class Reloadable(Protocol):
    """A toolset of configured servers."""

    @property
    def config(self) -> HubConfig:
        """The configuration that holds now."""
        ...

    @property
    def read(self) -> Callable[[], HubConfig]:
        """Reads the configuration as it is by now."""
        ...

    def watched(self) -> list[Path]:
        """The files that the configuration came from, and what it refers to."""
        ...

    def reloads(
        self,
        *,
        sources: Callable[[], Mapping[str, ToolSource]],
        changed: Callable[[], None],
        rebuild: Callable[[], Awaitable[None]],
    ) -> Reloads:
        """What reloads it within a server; see `Reloads`."""
        ...


def reloadable_in(toolset: Toolset) -> Reloadable | None:
    """What can be reloaded in a toolset, or is it; the first, if there are several."""
    if isinstance(toolset, Reloadable):
        return toolset
    nested = (reloadable_in(member) for member in toolset.members() if isinstance(member, Toolset))
    return next((found for found in nested if found is not None), None)
