"""`mcp-toolset list` and `search`: what a target offers, and what that costs a model."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset.cli.options import (
    TargetAccess,
    complete_word,
    deferred_option,
    has_target,
    json_option,
    reach_options,
    refuse_given,
    search_options,
    target_and_words,
    target_command,
)
from mcp_toolset.cli.output import Column, Output, answering
from mcp_toolset.cli.target import parse_target
from mcp_toolset.errors import CallError, TargetError
from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.index import SearchHit
    from mcp_toolset.context.offer_kinds import Kind
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.source import SourceStatus, ToolSource
    from mcp_toolset.tools.view import ToolBinding


_OF_TARGETS: Final = ("deferred", "header", "strict", "token_env", "verbose")


@target_command(
    "list",
    "TARGET | -- COMMAND…",
    "mcp-toolset list mcp.json",
    "mcp-toolset list mcp.json --servers --strict",
    "mcp-toolset list https://host/mcp --token-env TOKEN",
    "mcp-toolset list -- npx -y @scope/server",
    "mcp-toolset list --clients --tokens",
)
@click.option("--prompts", is_flag=True, help="List the prompts instead of the tools; see get.")
@click.option("--resources", is_flag=True, help="List the resources instead of the tools; see get.")
@click.option("--servers", is_flag=True, help="List the servers: protocol, state, broken tools and sizes.")
@click.option("--clients", is_flag=True, help="Without TARGET: list the servers that your clients have.")
@click.option("--tokens", is_flag=True, help="With --clients: start each server, to count its tools' tokens.")
@click.option("--strict", is_flag=True, help="Exit with 1 if any server is down.")
@json_option
@deferred_option
@reach_options
@click.pass_context
def list_command(
    ctx: click.Context,
    words: Sequence[str],
    tokens: bool,
    strict: bool,
    as_json: bool,
    deferred: bool | None,
    reach: TargetAccess,
    **views: bool,
) -> int:
    """List the tools that a model would see, the number of tools behind search, and servers that are down."""
    chosen = [view for view, is_asked in views.items() if is_asked]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} are two lists; ask for one of them", ctx)
    view = chosen[0] if chosen else "tools"
    if view == "clients":
        if has_target(ctx, words):
            raise click.UsageError("--clients reads the files of your clients; leave TARGET out", ctx)
        refuse_given(ctx, _OF_TARGETS, "has no effect on --clients; leave it out")
        from mcp_toolset.cli.commands.clients import show_clients

        with answering(as_json=as_json) as output:
            show_clients(output, tokens, reach.timeout)
        return 0
    refuse_given(ctx, ("tokens",), "is for the servers of clients: add --clients, and leave TARGET out")
    target, command, _ = target_and_words(ctx, words)
    place = parse_target(target, command)

    with answering(as_json=as_json) as output:

        async def show(server: ToolsetServer) -> bool:
            from mcp_toolset.cli.mount import name_down, reachable
            from mcp_toolset.cli.pinning import clearing

            if view == "servers":
                report = clearing(server)(_report(server))
                output.json(report) if as_json else _show_report(report, output)
            elif view != "tools":
                await _show_offered(server, output, prompts=view == "prompts")
            elif as_json:
                output.json(clearing(server)(_as_json(server)))
            else:
                _show_tools(server, output)
            return (name_down(server) and strict) or not reachable(server)

        # A report of servers says why one is down, also if all are.
        reasons = None if view == "servers" else False
        return int(reach.run_on(place, show, deferred=deferred, reasons=reasons))


async def _show_offered(server: ToolsetServer, output: Output, *, prompts: bool) -> None:
    from mcp_toolset.cli.pinning import clearing
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


_LISTED = (Column("tool"), Column("server"), Column("description", prose=True, label=False))
_STATES = (Column("server"), Column("state", state=True), Column("tools"), Column("note", prose=True))


def _as_json(server: ToolsetServer) -> dict[str, Any]:
    from mcp_toolset.cli.pinning import status_lists

    deferred, keys = _deferred(server), ("state", "reason", "retry_in", "tools")
    servers = {
        name: {**{key: getattr(one, key) for key in keys}, **status_lists(one)}
        for name, one in server.statuses().items()
    }
    total = {"total": sum(deferred.values()), "servers": deferred}
    return {"tools": server.tools(), "deferred": total, "servers": servers}


def _deferred(server: ToolsetServer) -> Mapping[str, int]:
    from mcp_toolset.cli.mount import visible_bindings

    return Counter(binding.source for binding in visible_bindings(server) if binding.deferred)


def _show_tools(server: ToolsetServer, output: Output) -> None:
    from mcp_toolset.catalog.search.entry import CatalogEntry
    from mcp_toolset.cli.mount import visible_bindings
    from mcp_toolset.cli.pinning import clearing

    clear = clearing(server)
    listed = [binding for binding in visible_bindings(server) if not binding.deferred]
    rows = [
        (tool.name, tool.source, clear(CatalogEntry(tool.definition, tool.name).description_line))
        for tool in listed
    ]
    if rows:
        output.table(_LISTED, rows)
    tools, deferred = counted(len(rows), "tool"), _deferred(server)
    counts = ", ".join(f"{source or 'local'}: {count}" for source, count in deferred.items())
    behind = f", and {sum(deferred.values())} more behind search ({counts})" if deferred else ""
    output.say(tools + behind)
    if statuses := server.statuses():
        output.text("")
        states: list[tuple[str, str, str, str]] = []
        for name, one in statuses.items():
            aside = f"{len(one.set_aside)} set aside; see --servers" if one.set_aside else ""
            states.append((name, one.state, str(one.tools), one.reason or aside))
        output.table(_STATES, states)


async def listed(server: ToolsetServer, kind: Kind) -> list[Mapping[str, Any]]:
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
    _show_rows("prompt", columns, rows, output)


def show_resources(entries: Sequence[Mapping[str, Any]], output: Output) -> None:
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
    _show_rows("resource", columns, rows, output)


_DESCRIPTION = Column("description", prose=True, label=False)


def _show_rows(noun: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], output: Output) -> None:
    if rows:
        output.table(columns, rows)
    output.say(counted(len(rows), noun))


def _arguments(prompt: Mapping[str, Any]) -> str:
    arguments: Sequence[Mapping[str, Any]] = prompt.get("arguments") or ()
    return ", ".join(str(one["name"]) + ("" if one.get("required") else "?") for one in arguments)


def _described(entry: Mapping[str, Any]) -> str:
    return str(entry.get("description") or entry.get("title") or "").split("\n")[0]


@target_command(
    "search",
    "TARGET QUERY | QUERY -- COMMAND…",
    "mcp-toolset search mcp.json history of commits",
    "mcp-toolset search mcp.json issues --server github",
)
@search_options
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
    reach: TargetAccess,
) -> None:
    """Search the tools of TARGET, also those behind search, by what they do."""
    target, command, rest = target_and_words(ctx, words, "QUERY", more=True)
    place = parse_target(target, command)
    query = " ".join(rest)

    async def find(mounted: ToolsetServer) -> Any:
        from mcp_toolset.cli.pinning import clearing

        hits = _search(mounted, query, server, limit)
        return clearing(mounted)([_hit(hit, mounted.statuses()) for hit in hits])

    with answering() as output:
        rows = reach.run_on(place, find)
        if as_json:
            output.json({"query": query, "hits": rows})
        else:
            _show_hits(rows, query, output)


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


def _show_hits(rows: Sequence[Mapping[str, Any]], query: str, output: Output) -> None:
    if not rows:
        output.say(f"no tool fits {query!r}; try other words")
        return
    if not any(row["fits"] for row in rows):
        output.say(f"no tool fits {query!r} well; these are the nearest")
    output.table(
        _HITS, [["" if row[hit.name] is None else str(row[hit.name]) for hit in _HITS] for row in rows]
    )


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
    from mcp_toolset.cli.mount import size_of
    from mcp_toolset.protocol.eras import lowered_tool
    from mcp_toolset.server.tool_table import overridden

    wires = {binding.name: binding.to_wire() for binding in server.bindings()}
    tools = [_tool(binding) for binding in server.bindings()]
    listed = [tool for tool in tools if not tool["deferred"]]
    return {
        "name": server.name,
        "listed": {"tools": len(listed), **size_of(server.tools())},
        "deferred": {"tools": len(tools) - len(listed)},
        "servers": [_server(source) for source in server.toolset.sources()],
        "tools": tools,
        # Definitions that are cut for clients up to 2025-11-25.
        "lowered": [name for name, wire in wires.items() if lowered_tool(wire) is not wire],
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
    from mcp_toolset.cli.mount import size_of

    return {
        "name": binding.name,
        "server": binding.source or None,
        "deferred": binding.deferred,
        "read_only": binding.definition.read_only,
        **size_of(binding.to_wire()),
    }


def _server(source: ToolSource) -> dict[str, Any]:
    from mcp_toolset.cli.pinning import status_lists

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
    from mcp_toolset.protocol.methods import is_modern
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


def _show_report(report: Mapping[str, Any], output: Output) -> None:
    from mcp_toolset.cli.pinning import change_lines

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
        found_by = [
            {**tool, "deferred": "search" if tool["deferred"] else "list"} for tool in report["tools"]
        ]
        output.table(_TOOLS, _cells(found_by, keys))
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
    for one in report["names"]:
        output.say(f"no such tool: {one['where']}({visible(one['name'])!r}): {visible(one['reason'])}")
    for one in report["overridden"]:
        output.say(f"overridden: {one['name']}: its own {one['place']} has changed at the server")
    for tool in report["set_aside"]:
        output.say(f"set aside: {visible(tool['name'])}: {tool['reason']}")


def _cells(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[list[str]]:
    return [["" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
