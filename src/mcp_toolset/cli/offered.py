"""Prompts and resources of a target, for the commands `list`, `get` and `read`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.errors import CallError
from mcp_toolset.tools.core.call import LOCAL_CONTEXT
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.context.offer_kinds import Kind
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["listed", "show_prompts", "show_resources", "unknown"]


async def listed(server: ToolsetServer, kind: Kind) -> list[Mapping[str, Any]]:
    """All entries of a kind by the names that commands accept."""
    entries: list[Mapping[str, Any]] = []
    cursor: str | None = None
    while True:
        page = await server.offering.page(kind, cursor, LOCAL_CONTEXT)
        entries += page[kind.key]
        cursor = page.get("nextCursor")
        if cursor is None:
            return entries


def unknown(noun: str, name: str, names: Sequence[str], target: str) -> CallError:
    close = difflib.get_close_matches(name, names, n=1)
    mend = f"did you mean {close[0]}?" if close else f"see mcp-toolset list {target} --{noun}s"
    return CallError(f"{name}: no such {noun}; {mend}")


def show_prompts(entries: Sequence[Mapping[str, Any]], output: Output) -> None:
    columns = (Column("prompt"), Column("arguments", prose=True), _DESCRIPTION)
    rows = [(str(entry["name"]), _arguments(entry), _described(entry)) for entry in entries]
    _show("prompt", columns, rows, output)


def show_resources(entries: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Resources and resource templates."""
    columns = (Column("resource"), Column("name"), Column("type"), _DESCRIPTION)
    rows = [
        (
            str(entry.get("uri") or entry.get("uriTemplate")),
            str(entry.get("name") or ""),
            str(entry.get("mimeType") or ""),
            _described(entry),
        )
        for entry in entries
    ]
    _show("resource", columns, rows, output)


_DESCRIPTION = Column("description", prose=True, label=False)


def _show(noun: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], output: Output) -> None:
    if rows:
        output.table(columns, rows)
    output.say(counted(len(rows), noun))


def _arguments(prompt: Mapping[str, Any]) -> str:
    arguments: Sequence[Mapping[str, Any]] = prompt.get("arguments") or ()
    return ", ".join(str(one["name"]) + ("" if one.get("required") else "?") for one in arguments)


def _described(entry: Mapping[str, Any]) -> str:
    return str(entry.get("description") or entry.get("title") or "").split("\n")[0]
