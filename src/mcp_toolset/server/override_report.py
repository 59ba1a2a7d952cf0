"""Reports texts of the host that override texts of a server, if the server's text has changed.

A description hook, `.described`, or a parameter that is described anew was written with the server's own
text in mind. When that changes underneath, a model goes on reading the host's words, and only the host can
tell whether they still hold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.source import ToolChange, ToolSource, fits
from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["OverrideReport", "overridden"]


@runtime_checkable
class ListingSource(Protocol):
    """A source that knows what its server lists of a tool now, whatever is shown of it."""

    def listed(self, tool: str) -> ToolDefinition | None:
        """What the server itself says of a tool, by the server's own name for it."""
        ...


_log = logging.getLogger("mcp_toolset.pins")


def overridden(bindings: Iterable[ToolBinding], sources: Iterable[ToolSource]) -> Iterator[tuple[str, str]]:
    """Public name and place, such as `description`, of each override over something that has changed."""
    changes = {
        (source.source_name, change.name): (change, served)
        for source in sources
        if fits(source, ListingSource)
        for change in source.status.changes
        if (served := source.listed(change.name)) is not None
    }
    for binding in bindings if changes else ():
        found = changes.get((binding.source, binding.definition.name))
        if found is not None:
            change, served = found
            yield from ((binding.name, place) for place in _touched(change, served, binding.definition))


def _touched(change: ToolChange, served: ToolDefinition, shown: ToolDefinition) -> list[str]:
    # It takes long to load and is seldom asked.
    from mcp_toolset.catalog.pins.canonical import canonical
    from mcp_toolset.catalog.pins.differences import compared

    moved = {_place(path) for path in change.differences}
    ours = {_place(difference.path) for difference in compared(canonical(served), canonical(shown))}
    return sorted(moved & ours)


def _place(path: str) -> str:
    """A parameter is one place, and so is each other part of a definition."""
    steps = path.split(".")
    return ".".join(steps[:3] if steps[1:2] == ["properties"] else steps[:1])


class OverrideReport:
    """Says in the log what has moved under an override, once as long as that lasts."""

    def __init__(self) -> None:
        self._told: frozenset[tuple[str, str]] = frozenset()

    def look(self, bindings: Iterable[ToolBinding], sources: Iterable[ToolSource]) -> None:
        """Compare what is shown with what is beneath."""
        found = frozenset(overridden(bindings, sources))
        for name, place in sorted(found - self._told):
            _log.warning(
                "%s: its %s is overridden here, and has changed at the server since; check that your text is "
                "still right",
                name,
                place,
            )
        self._told = found
