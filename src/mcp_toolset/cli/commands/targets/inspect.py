"""`mcp-toolset inspect`: what is mounted, its status, and what its definitions cost a model in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.costs import size_of
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
    from mcp_toolset.tools.core.source import ToolSource
    from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["inspect_command"]


@target_command(
    "inspect",
    "TARGET | -- COMMAND…",
    "mcp-toolset inspect mcp.json",
    "mcp-toolset inspect app.py --json",
)
@json_option
@deferred_option
@reach_options
@click.pass_context
def inspect_command(
    ctx: click.Context,
    words: Sequence[str],
    as_json: bool,
    deferred: bool | None,
    reach: Reach,
) -> int:
    """Show the servers of TARGET: protocol, transport, status, broken tools, sizes in bytes and tokens."""
    target, command, _ = target_and_words(ctx, words)
    place = parse_target(target, command)

    from mcp_toolset.cli.display.changes import clearing
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.display.servers import name_down, opening, reachable, warn_of_keys
    from mcp_toolset.cli.mount import mount, run

    reach.log()

    async def look(output: Output) -> int:
        server = mount(place, reach.mounting(deferred=deferred).looking)
        async with AsyncExitStack() as stack:
            with opening(server):
                await stack.enter_async_context(server)
                await server.settled()
            report = clearing(server)(_report(server))
            if as_json:
                output.json(report)
            else:
                _show(report, output)
            name_down(server)
            warn_of_keys(server)
            return 0 if reachable(server) else 1

    with answering() as output:
        return run(lambda: look(output))


_SERVERS = (
    Column("name"),
    Column("state", state=True),
    Column("transport"),
    Column("era"),
    Column("protocol version", label=False),
    Column("tools"),
    Column("address", prose=True),
    Column("reason", prose=True),
)
_TOOLS = tuple(map(Column, ("tool", "server", "found by", "bytes", "tokens")))


def _report(server: ToolsetServer) -> dict[str, Any]:
    from mcp_toolset.server.tool_table import overridden

    tools = [_tool(binding) for binding in server.bindings()]
    listed = [tool for tool in tools if not tool["deferred"]]
    return {
        "name": server.name,
        "listed": {"tools": len(listed), **size_of(server.tools())},
        "deferred": {"tools": len(tools) - len(listed)},
        "servers": [_server(source) for source in server.toolset.sources()],
        "tools": tools,
        "lowered": [name for name, lowered in map(_lowered, server.bindings()) if lowered],
        "set_aside": [{"name": name, "reason": reason} for name, reason in server.toolset.set_aside()],
        "names": [
            {"name": one.name, "where": one.where, "reason": one.reason, "waiting": list(one.waiting)}
            for one in server.unbound()
        ],
        "overridden": [
            {"name": name, "place": place}
            for name, place in overridden(server.bindings(), server.toolset.sources())
        ],
    }


def _tool(binding: ToolBinding) -> dict[str, Any]:
    return {
        "name": binding.name,
        "server": binding.source or None,
        "deferred": binding.deferred,
        "read_only": binding.definition.read_only,
        **size_of(binding.to_wire()),
    }


def _lowered(binding: ToolBinding) -> tuple[str, bool]:
    """A tool's row, and whether its definition is cut for clients up to 2025-11-25."""
    from mcp_toolset.protocol.eras import lowered_tool

    wire = binding.to_wire()
    return binding.name, lowered_tool(wire) is not wire


def _server(source: ToolSource) -> dict[str, Any]:
    from mcp_toolset.cli.display.changes import status_lists

    status = source.status
    return {
        "name": source.source_name,
        **_connection(source),
        "state": status.state,
        "reason": status.reason or None,
        "retry_in": status.retry_in,
        "tools": status.tools,
        **status_lists(status),
    }


def _connection(source: ToolSource) -> dict[str, Any]:
    from mcp_toolset.protocol.revisions import is_modern
    from mcp_toolset.upstream.toolset import RemoteToolset

    if not isinstance(source, RemoteToolset):
        return {}
    connection = source.connection
    version, about = connection.protocol_version, connection.server_info
    return {
        "transport": connection.link.transport,
        "address": connection.link.shown,
        "protocol_version": version,
        "era": None if version is None else "modern" if is_modern(version) else "legacy",
        "server": None if about is None else {"name": about.name, "version": about.version},
    }


def _show(report: Mapping[str, Any], output: Output) -> None:
    from mcp_toolset.cli.display.changes import change_lines
    from mcp_toolset.tools.text.hidden_text import visible

    listed, deferred = report["listed"], report["deferred"]["tools"]
    cost = f"{listed['bytes']} bytes, about {listed['tokens_estimate']} tokens"
    output.say(
        f"{report['name']}: {counted(listed['tools'], 'tool')} listed ({cost}), {deferred} behind search"
    )
    output.text("")
    if report["servers"]:
        keys = ("name", "state", "transport", "era", "protocol_version", "tools", "address", "reason")
        output.table(_SERVERS, _cells(report["servers"], keys))
        output.text("")
    if report["tools"]:
        keys = ("name", "server", "deferred", "bytes", "tokens_estimate")
        output.table(_TOOLS, _cells(map(_found_by, report["tools"]), keys))
    if lowered := report["lowered"]:
        cut = "clients up to 2025-11-25 are listed no output schema, since it is not one of an object"
        output.say(f"lowered: {len(lowered)} ({', '.join(lowered)}): {cut}")
    _show_tools_to_look_at(report, output)
    for server in report["servers"]:
        for tool in server["set_aside"]:
            output.say(f"set aside: {server['name']}/{visible(tool['name'])}: {tool['reason']}")
        for tool in server["flagged"]:
            output.say(f"hidden text: {server['name']}/{visible(tool['name'])}: {tool['reason']}")
        for change in server["changes"]:
            output.say(f"{server['name']}/" + "\n".join(change_lines(change)))


def _show_tools_to_look_at(report: Mapping[str, Any], output: Output) -> None:
    """Names of missing tools, overrides of texts that the server has changed since, and tools set aside."""
    from mcp_toolset.tools.text.hidden_text import visible

    for one in report["names"]:
        output.say(f"no such tool: {one['where']}({visible(one['name'])!r}): {visible(one['reason'])}")
    for one in report["overridden"]:
        output.say(f"overridden: {one['name']}: its own {one['place']} has changed at the server")
    for tool in report["set_aside"]:
        output.say(f"set aside: {visible(tool['name'])}: {tool['reason']}")


def _found_by(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {**tool, "deferred": "search" if tool["deferred"] else "list"}


def _cells(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[list[str]]:
    return [["" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
