"""Texts about servers: tools that differ from their pins, and texts cleared of secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from mcp_toolset.catalog.pins.canonical import Difference, canonical, compared
from mcp_toolset.catalog.pins.policy import gained
from mcp_toolset.tools.core.source import SourceStatus, ToolChange
from mcp_toolset.tools.text.hidden_text import visible

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer


__all__ = ["change_json", "change_lines", "clearing", "status_lists"]


def status_lists(status: SourceStatus) -> dict[str, Any]:
    """The tools that a status reports: set aside, with hidden text, or changed."""
    return {
        "set_aside": [{"name": name, "reason": reason} for name, reason in status.set_aside],
        "flagged": [{"name": name, "reason": reason} for name, reason in status.flagged],
        "changes": [_of_status(change) for change in status.changes],
    }


def _of_status(change: ToolChange) -> dict[str, Any]:
    old = None if change.pinned is None else canonical(change.pinned)
    return {**change_json(change.name, old, canonical(change.offered)), "held": change.held}


def change_json(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """One tool that is new, missing or changed, as plain data."""
    kind = "new" if old is None else "gone" if new is None else "changed"
    return {
        "name": name,
        "change": kind,
        "gained": list(gained(old, new)) if old is not None and new is not None else [],
        "differences": [difference.to_json() for difference in compared(old or {}, new or {})],
    }


def change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    """The lines for one tool: its change, what it gained, and every difference; nothing is hidden or cut."""
    held = " (held back)" if change.get("held") else ""
    yield f"{visible(change['name'])}: {change['change']}{held}"
    for reason in change["gained"]:
        yield f"    gained: {visible(reason)}"
    if change["change"] == "gone":
        return
    for entry in change["differences"]:
        if entry["path"] == "name":
            continue
        yield f"    {entry['path']}"
        for line in Difference.of_json(entry).lines():
            yield f"      {line}"


_TEXTS: Final = frozenset(("description", "title", "reason", "version", "before", "after", "instructions"))


def clearing(server: ToolsetServer) -> Callable[[Any], Any]:
    """A function that clears the texts in a JSON value; a bare text is cleared whole.

    Only texts for people are cleared, and all that a server says of itself (`server`). Names, schemas and
    results are data and stay unchanged.
    """
    from mcp_toolset.upstream.toolset import RemoteToolset

    sources = server.toolset.sources()
    links = [source.connection.link for source in sources if isinstance(source, RemoteToolset)]

    def text(said: str) -> str:
        for link in links:
            said = link.scrubbed(said)
        return said

    def clear(value: Any, is_text: bool = True, whole: bool = False) -> Any:
        if isinstance(value, str):
            return text(value) if is_text else value
        if isinstance(value, list | tuple):
            return [clear(item, is_text, whole) for item in cast("list[Any]", value)]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            about = {
                key for key, item in table.items() if whole or (key == "server" and isinstance(item, dict))
            }
            return {key: clear(item, key in about | _TEXTS, key in about) for key, item in table.items()}
        return value

    return clear
