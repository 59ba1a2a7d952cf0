"""`Passing`: where requests go that name a tool or prompt which no server lists."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.server.visibility import Visibility
from mcp_toolset.tools.core.source import ToolSource, fits
from mcp_toolset.tools.view.view import ToolBinding


class PassingSource(ToolSource, Protocol):
    """A mounted source that may be asked for what it does not list."""

    @property
    def instructions(self) -> str: ...

    def server_info(self) -> dict[str, Any]:
        """What it says it is; empty while that is unknown."""
        ...

    def admits(self, name: str) -> bool:
        """Whether a name is not that of something which it lists or which is set aside."""
        ...

    def passed(self, name: str) -> ToolBinding | None:
        """What sends calls of an unlisted tool on; `None` if the tool is held back."""
        ...


@runtime_checkable
class PassingToolset(Protocol):
    """A toolset that may consist of one `PassingSource`, as the server lists it."""

    def passing(self) -> PassingSource | None:
        """The source; `None` if unlisted names are refused."""
        ...


class Passing:
    """The server behind a bridge that serves it alone, with `unlisted="pass"`."""

    def __init__(self, registry: ToolRegistry, visibility: Visibility) -> None:
        self._registry = registry
        self._visibility = visibility

    def source(self) -> PassingSource | None:
        """The source; `None` while a second source, a verb, a rule of names or a policy stands before it.

        A rule that knows tools by their names and definitions cannot judge a tool that is not listed.
        """
        registry = self._registry
        if len(registry.sources()) != 1 or registry.chooses or self._visibility.policy is not None:
            return None
        found = (each.passing() for each in registry.toolsets() if fits(each, PassingToolset))
        return next((source for source in found if source is not None), None)
