"""`mcp-toolset search`: find tools of a target by what they do, listed and deferred tools alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.options import (
    Reach,
    complete_word,
    json_option,
    reach_options,
    target_and_words,
    target_command,
)
from mcp_toolset.cli.target import parse_target
from mcp_toolset.errors import TargetError

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.index import SearchHit
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.core.source import SourceStatus

__all__ = ["search_command"]


@target_command(
    "search",
    "TARGET QUERY | QUERY -- COMMAND…",
    "mcp-toolset search mcp.json history of commits",
    "mcp-toolset search mcp.json issues --server github",
)
@click.option(
    "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="The largest number of hits."
)
@click.option("--server", metavar="NAME", shell_complete=complete_word, help="Only tools of this server.")
@json_option
@reach_options
@click.pass_context
def search_command(
    ctx: click.Context,
    words: Sequence[str],
    limit: int,
    server: str | None,
    as_json: bool,
    reach: Reach,
) -> None:
    """Search the tools of TARGET, also those behind search, by what they do."""
    target, command, rest = target_and_words(ctx, words, "QUERY", more=True)
    place = parse_target(target, command)
    query = " ".join(rest)

    from mcp_toolset.cli.display.changes import clearing
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run_on

    reach.log()

    async def find(mounted: ToolsetServer) -> Any:
        hits = _search(mounted, query, server, limit)
        return clearing(mounted)([_hit(hit, mounted.statuses()) for hit in hits])

    with answering() as output:
        rows = run_on(place, reach.mounting(), find)
        if as_json:
            output.json({"query": query, "hits": rows})
        else:
            _show(rows, query, output)


_HITS = (
    Column("name"),
    Column("server"),
    Column("state", state=True, label=False),
    Column("score"),
    Column("signature", prose=True, label=False),
    Column("description", prose=True, label=False),
)


def _search(mounted: ToolsetServer, query: str, server: str | None, limit: int) -> list[SearchHit]:
    from mcp_toolset.catalog.search.index import CatalogEntry, SearchIndex
    from mcp_toolset.cli.mount import own_bindings
    from mcp_toolset.config.keys import did_you_mean

    if server is not None and server not in mounted.statuses():
        names = [*mounted.statuses()]
        known = did_you_mean(server, names) or f"it has {', '.join(names)}" if names else "none is mounted"
        raise TargetError(f"--server {server}: no server of that name; {known}")
    entries = [
        CatalogEntry(tool.definition, tool.name, tool.source or None) for tool in own_bindings(mounted)
    ]
    return SearchIndex(entries).search(query, server=server, limit=limit)


def _hit(hit: SearchHit, statuses: Mapping[str, SourceStatus]) -> dict[str, Any]:
    status = statuses.get(hit.server or "")
    return {
        "name": hit.name,
        "id": hit.id,
        "server": hit.server,
        "state": "available" if status is None or status.is_up else status.state,
        "score": round(hit.score, 3),
        "fits": hit.fits,
        "signature": hit.signature,
        "description": hit.description,
    }


def _show(rows: Sequence[Mapping[str, Any]], query: str, output: Output) -> None:
    if not rows:
        output.say(f"no tool fits {query!r}; try other words")
        return
    if not any(row["fits"] for row in rows):
        output.say(f"no tool fits {query!r} well; these are the nearest")
    output.table(
        _HITS, [["" if row[hit.name] is None else str(row[hit.name]) for hit in _HITS] for row in rows]
    )
