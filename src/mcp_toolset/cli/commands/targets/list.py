"""`mcp-toolset list`: the tools of a target as a model would see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.options import (
    Reach,
    deferred_option,
    json_option,
    reach_options,
    target_and_words,
    target_command,
)
from mcp_toolset.cli.target import parse_target
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.core.source import SourceStatus

__all__ = ["list_command"]


@target_command(
    "list",
    "TARGET | -- COMMAND…",
    "mcp-toolset list mcp.json",
    "mcp-toolset list mcp.json --strict --json",
    "mcp-toolset list https://host/mcp --token-env TOKEN",
    "mcp-toolset list -- npx -y @scope/server",
)
@click.option("--prompts", is_flag=True, help="List the prompts instead of the tools; see get.")
@click.option("--resources", is_flag=True, help="List the resources instead of the tools; see read.")
@click.option("--strict", is_flag=True, help="Exit with 1 if any server is down.")
@json_option
@deferred_option
@reach_options
@click.pass_context
def list_command(
    ctx: click.Context,
    words: Sequence[str],
    prompts: bool,
    resources: bool,
    strict: bool,
    as_json: bool,
    deferred: bool | None,
    reach: Reach,
) -> int:
    """List the tools that a model would see, the number of tools behind search, and servers that are down."""
    target, command, _ = target_and_words(ctx, words)
    if prompts and resources:
        raise click.UsageError("--prompts and --resources are two lists; ask for one of them", ctx)
    place = parse_target(target, command)

    from mcp_toolset.cli.display.changes import clearing
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.display.servers import name_down
    from mcp_toolset.cli.mount import opened, run

    reach.log()

    async def show(output: Output) -> bool:
        async with opened(place, reach.mounting(deferred=deferred), reasons=False) as server:
            if prompts or resources:
                await _show_offered(server, output, prompts=prompts)
            elif output.as_json:
                output.json(clearing(server)(_as_json(server)))
            else:
                _show(server, output)
            return name_down(server)

    with answering(as_json=as_json) as output:
        down = run(lambda: show(output))
    return int(strict and down)


async def _show_offered(server: ToolsetServer, output: Output, *, prompts: bool) -> None:
    from mcp_toolset.cli.display.changes import clearing
    from mcp_toolset.cli.offered import listed, show_prompts, show_resources
    from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES, TEMPLATES

    kinds = (PROMPTS,) if prompts else (RESOURCES, TEMPLATES)
    clear = clearing(server)
    entries = {kind.key: clear(await listed(server, kind)) for kind in kinds}
    if output.as_json:
        output.json(entries)
    elif prompts:
        show_prompts(entries[PROMPTS.key], output)
    else:
        show_resources([entry for found in entries.values() for entry in found], output)


_TOOLS = (Column("tool"), Column("server"), Column("description", prose=True, label=False))
_SERVERS = (Column("server"), Column("state", state=True), Column("tools"), Column("note", prose=True))


def _as_json(server: ToolsetServer) -> dict[str, Any]:
    deferred = _deferred(server)
    return {
        "tools": server.tools(),
        "deferred": {"total": sum(deferred.values()), "servers": deferred},
        "servers": {name: _status(status) for name, status in server.statuses().items()},
    }


def _status(status: SourceStatus) -> dict[str, Any]:
    from mcp_toolset.cli.display.changes import status_lists

    return {
        "state": status.state,
        "reason": status.reason,
        "retry_in": status.retry_in,
        "tools": status.tools,
        **status_lists(status),
    }


def _deferred(server: ToolsetServer) -> Mapping[str, int]:
    from mcp_toolset.cli.mount import visible_bindings

    return Counter(binding.source for binding in visible_bindings(server) if binding.deferred)


def _show(server: ToolsetServer, output: Output) -> None:
    from mcp_toolset.catalog.search.entry import CatalogEntry
    from mcp_toolset.cli.display.changes import clearing
    from mcp_toolset.cli.mount import visible_bindings

    clear = clearing(server)
    listed = [binding for binding in visible_bindings(server) if not binding.deferred]
    rows = [
        (tool.name, tool.source, clear(CatalogEntry(tool.definition, tool.name).description_line))
        for tool in listed
    ]
    if rows:
        output.table(_TOOLS, rows)
    output.say(_summary(len(rows), _deferred(server)))
    if statuses := server.statuses():
        output.text("")
        output.table(_SERVERS, [_row(name, status) for name, status in statuses.items()])


def _summary(listed: int, deferred: Mapping[str, int]) -> str:
    tools = counted(listed, "tool")
    if not deferred:
        return tools
    counts = ", ".join(f"{source or 'local'}: {count}" for source, count in deferred.items())
    return f"{tools}, and {sum(deferred.values())} more behind search ({counts})"


def _row(name: str, status: SourceStatus) -> tuple[str, str, str, str]:
    aside = f"{len(status.set_aside)} set aside; see inspect" if status.set_aside else ""
    return name, status.state, str(status.tools), status.reason or aside
