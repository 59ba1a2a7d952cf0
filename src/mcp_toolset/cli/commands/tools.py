"""`mcp-toolset list` and `search`: what a target offers, and what that costs a model."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import click

from mcp_toolset._index import marked
from mcp_toolset._records import dataclass
from mcp_toolset.cli import options
from mcp_toolset.cli.output import Column, Output, TerminalContext, answering, block_text, complain, working
from mcp_toolset.cli.target import ConfigFile, Module, ProgramFile, parse_target
from mcp_toolset.errors import CallError, InvalidArgumentsError, TargetError
from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.index import SearchHit
    from mcp_toolset.context.offer_kinds import Kind
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.source import SourceStatus, ToolSource
    from mcp_toolset.tools.view import ToolBinding

_OF_TARGETS: Final = ("deferred", "header", "strict", "token_env", "verbose")


@options.target_command(
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
@options.json_option
@options.deferred_option
@options.reach_options
@click.pass_context
def list_command(
    ctx: click.Context,
    words: Sequence[str],
    tokens: bool,
    strict: bool,
    as_json: bool,
    deferred: bool | None,
    reach: options.TargetAccess,
    **views: bool,
) -> int:
    """List the tools that a model would see, the number of tools behind search, and servers that are down."""
    chosen = [view for view, is_asked in views.items() if is_asked]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} are two lists; ask for one of them", ctx)
    view = chosen[0] if chosen else "tools"
    if view == "clients":
        if options.has_target(ctx, words):
            raise click.UsageError("--clients reads the files of your clients; leave TARGET out", ctx)
        options.refuse_given(
            ctx, (*_OF_TARGETS, *marked("view_option")), "has no effect on --clients; leave it out"
        )
        from mcp_toolset.cli.commands.clients import show_clients

        with answering(as_json=as_json) as output:
            show_clients(output, tokens, reach.timeout)
        return 0
    options.refuse_given(
        ctx, ("tokens",), "is for the servers of clients: add --clients, and leave TARGET out"
    )
    target, command, _ = options.target_and_words(ctx, words)
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
            else:
                beside = clearing(server)(
                    [_beside(one) for one in await server.extensions.findable(LOCAL_CONTEXT)]
                )
                if as_json:
                    output.json(
                        {**clearing(server)(_as_json(server)), **({"others": beside} if beside else {})}
                    )
                else:
                    _show_tools(server, output, beside)
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


def _beside(one: Mapping[str, str]) -> dict[str, str]:
    """Something beside tools, as JSON."""
    found = {name: one[name] for name in ("kind", "name", "server", "description", "address")}
    return {**found, "description": found["description"].strip().split("\n")[0]}


def _show_beside(rows: Sequence[Mapping[str, str]], output: Output) -> None:
    """A table of each kind of what is beside tools."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = [row for row in rows if row["kind"] == kind]
        output.text("")
        columns = (Column(kind), Column("server"), Column("address"), _DESCRIPTION)
        output.table(
            columns, [(one["name"], one["server"], one["address"], one["description"]) for one in some]
        )
        output.say(counted(len(some), kind))


def _show_tools(server: ToolsetServer, output: Output, beside: Sequence[Mapping[str, str]] = ()) -> None:
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
    _show_beside(beside, output)
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


@options.target_command(
    "search",
    "TARGET QUERY | QUERY -- COMMAND…",
    "mcp-toolset search mcp.json history of commits",
    "mcp-toolset search mcp.json issues --server github",
)
@options.search_options
@click.option(
    "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="The largest number of hits."
)
@click.option(
    "--server", metavar="NAME", shell_complete=options.complete_word, help="Only tools of this server."
)
@options.json_option
@options.reach_options
@click.pass_context
def search_command(
    ctx: click.Context,
    words: Sequence[str],
    limit: int,
    server: str | None,
    as_json: bool,
    reach: options.TargetAccess,
) -> None:
    """Search the tools of TARGET, also those behind search, by what they do."""
    target, command, rest = options.target_and_words(ctx, words, "QUERY", more=True)
    place = parse_target(target, command)
    query = " ".join(rest)

    async def find(mounted: ToolsetServer) -> Any:
        from mcp_toolset.catalog.deferred.findable import OtherIndex, answer_json
        from mcp_toolset.cli.pinning import clearing

        hits = _search(mounted, query, server, limit)
        things = await mounted.extensions.findable(LOCAL_CONTEXT)
        beside = OtherIndex().search(query, things, server) if things else []
        clear = clearing(mounted)
        rows = clear([_hit(hit, mounted.statuses()) for hit in hits])
        return rows, clear([{**answer_json(one), "server": one.server or ""} for one in beside])

    with answering() as output:
        rows, beside = reach.run_on(place, find)
        if as_json:
            output.json({"query": query, "hits": rows, **({"others": beside} if beside else {})})
        else:
            _show_hits(rows, query, output)
            _show_beside(beside, output)


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
    tools = [_told(binding) for binding in server.bindings()]
    listed = [tool for tool in tools if not tool["deferred"]]
    return {
        "name": server.name,
        "listed": {"tools": len(listed), **size_of(server.tools())},
        "deferred": {"tools": len(tools) - len(listed)},
        "servers": [_server(source) for source in server.toolset.sources()],
        "extensions": server.extensions.facts(),
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


def _told(binding: ToolBinding) -> dict[str, Any]:
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
    for key, facts in report["extensions"].items():
        for heading, said in facts.items():
            output.say(f"{key}, {heading}: {said}")
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


@options.target_command(
    "call",
    "TARGET TOOL [ARGUMENTS…] | TOOL [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset call app.py add a=1 b=2",
    "mcp-toolset call app.py sort names=b names=a",
    "mcp-toolset call add a=1 b=2 -- python app.py",
)
@click.option(
    "--key", metavar="KEY", help="What a repeat of this call has too, for servers that record calls."
)
@options.json_option
@options.reach_options
@click.pass_context
def call_command(
    ctx: click.Context, words: Sequence[str], key: str | None, as_json: bool, reach: options.TargetAccess
) -> int:
    """Call TOOL of TARGET and print its result.

    ARGUMENTS are key=value words, one JSON object, or - for JSON on stdin. To give a list, repeat its key.
    The exit code is 1 if the tool reports an error.
    """
    target, command, (tool, *typed) = options.target_and_words(ctx, words, "TOOL", more=True)
    place, arguments = parse_target(target, command), typed_arguments(typed, sys.stdin)

    async def call(server: ToolsetServer) -> ToolResult:
        binding = await _named(server, tool, options.written(target, command))
        # A server that is reached alone may record calls itself.
        is_ours = isinstance(place, ConfigFile | Module | ProgramFile)
        if key is not None and is_ours and not server.records(binding):
            told = f"nothing here records calls of {tool}, so a repeat with --key runs again"
            complain(f"{told}: turn the journal on, see docs/journal.md")
        return await _call(server, binding, _fitting(binding, arguments), key, reach.timeout)

    with answering() as output:
        result = reach.run_on(place, call)
        _show_result(result, tool, output, as_json)
    return 1 if result.is_error else 0


async def _named(server: ToolsetServer, name: str, target: str) -> ToolBinding:
    from mcp_toolset.context.offer_kinds import PROMPTS
    from mcp_toolset.tools.binding import loaded

    tools = {binding.name: binding for binding in server.bindings()}
    if name in tools:
        # The schemas of a tool that is listed by a manifest are fetched first.
        return await loaded(tools[name].contracted)
    if "://" in name:
        raise CallError(
            f"{name}: no tool, but the address of a resource; use mcp-toolset get {target} {name}"
        )
    close = difflib.get_close_matches(name, tools, n=1)
    mend = f"did you mean {close[0]}?" if close else f"see mcp-toolset list {target}"
    if any(entry["name"] == name for entry in await listed(server, PROMPTS)):
        mend = f"it is a prompt: use mcp-toolset get {target} {name}"
    raise CallError(f"{name}: no such tool in {target}; {mend}")


def _fitting(binding: ToolBinding, typed: TypedArguments) -> dict[str, Any]:
    from mcp_toolset.catalog.search.entry import CatalogEntry

    arguments = typed.read(binding.definition.input_schema)
    problems = binding.arguments.problems(arguments)
    if problems:
        signature = CatalogEntry(binding.definition, binding.name).signature
        raise InvalidArgumentsError(f"{binding.name}: {'; '.join(problems)}; it takes {signature}")
    return arguments


async def _call(
    server: ToolsetServer,
    binding: ToolBinding,
    arguments: dict[str, Any],
    key: str | None,
    seconds: float | None,
) -> ToolResult:
    import anyio

    try:
        with anyio.fail_after(seconds), working(f"calling {binding.name} …"):
            return await server.call_as_host(binding.name, arguments, context=TerminalContext(key))
    except TimeoutError:
        raise CallError(
            f"{binding.name}: no result within {seconds:g} s; allow more with --timeout"
        ) from None


def _show_result(result: ToolResult, tool: str, output: Output, as_json: bool) -> None:
    if as_json:
        output.json(dict(result.wire))
    elif result.is_error:
        text = _text(result) or "it failed and said nothing more"
        complain(text if tool in text else f"{tool}: {text}")
    else:
        output.text(_text(result))


def _text(result: ToolResult) -> str:
    if not result.content:
        return result.text
    return "\n".join(map(block_text, result.content))


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@options.target_command(
    "get",
    "TARGET WHAT [ARGUMENTS…] | WHAT [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset list app.py --prompts",
    "mcp-toolset get app.py review language=French",
    "mcp-toolset list mcp.json --resources",
    "mcp-toolset get mcp.json file:///notes/today.md",
)
@options.json_option
@options.reach_options
@click.pass_context
def get_command(ctx: click.Context, words: Sequence[str], as_json: bool, reach: options.TargetAccess) -> None:
    """Get a prompt or a resource of TARGET, and print it.

    WHAT is the name of a prompt or the URI of a resource. ARGUMENTS are those of a prompt: key=value words,
    one JSON object, or - for JSON on stdin. Binary content is printed with --json alone.
    """
    target, command, (what, *typed) = options.target_and_words(ctx, words, "WHAT", more=True)
    place, told = parse_target(target, command), options.written(target, command)
    if typed and "://" in what:
        raise click.UsageError(f"{what} is a resource, which takes no arguments; remove {typed[0]!r}", ctx)
    arguments = typed_arguments(typed, sys.stdin).as_texts()
    with answering() as output:
        found = reach.run_on(place, lambda server: _got(server, what, arguments, told))
        if as_json:
            output.json(dict(found))
            return
        for part in found.get("contents", ()):
            output.text(block_text({"type": "resource", "resource": part}))
        messages: Sequence[Mapping[str, Any]] = found.get("messages", ())
        for message in messages:
            text = block_text(message.get("content") or {})
            output.text(text if len(messages) == 1 else f"{message.get('role')}: {text}")


async def _got(
    server: ToolsetServer, what: str, arguments: Mapping[str, str], target: str
) -> Mapping[str, Any]:
    from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES

    async def names(kind: Kind, key: str) -> list[str]:
        return [str(entry[key]) for entry in await listed(server, kind)]

    # The name of a prompt may have a colon, too.
    named = _SCHEME.match(what) and "://" not in what and what in await names(PROMPTS, "name")
    if _SCHEME.match(what) and not arguments and not named:
        try:
            return await server.offering.read(what, TerminalContext())
        except LookupError:
            raise unknown("resource", what, await names(RESOURCES, "uri"), target) from None
    try:
        return await server.offering.prompt(what, arguments, TerminalContext())
    except LookupError as fault:
        if what in (known := await names(PROMPTS, "name")):
            raise CallError(f"{what}: {fault}; check its arguments") from None
        raise unknown("prompt", what, known, target) from None


_KINDS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 8
_HOW: Final = "write key=value words, one JSON object, or - for JSON on stdin"


@dataclass(frozen=True, slots=True)
class TypedArguments:
    """The arguments after the tool's name: a whole object, or texts by key that a schema has yet to parse."""

    whole: dict[str, Any] | None
    texts: Mapping[str, Sequence[str]]

    def read(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if self.whole is not None:
            return self.whole
        return {key: _value(key, texts, schema) for key, texts in self.texts.items()}

    def as_texts(self) -> dict[str, str]:
        if self.whole is not None:
            return {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in self.whole.items()
            }
        return {key: _single(key, texts) for key, texts in self.texts.items()}


def typed_arguments(words: Sequence[str], stdin: TextIO) -> TypedArguments:
    if list(words) == ["-"]:
        return TypedArguments(_object(stdin.read(), "stdin"), {})
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return TypedArguments(_object(words[0], "the arguments"), {})
    texts: dict[str, list[str]] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise click.UsageError(f"{word!r} is not an argument; {_HOW}")
        texts.setdefault(key, []).append(value)
    return TypedArguments(None, texts)


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as fault:
        raise click.UsageError(
            f"{place}: line {fault.lineno} column {fault.colno}: not valid JSON: {fault.msg}; {_HOW}"
        ) from None
    except RecursionError:
        raise click.UsageError(f"{place}: nested too deeply; {_HOW}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{place}: a JSON {_type_of(value)}, not an object; {_HOW}")
    return cast("dict[str, Any]", value)


def _value(key: str, texts: Sequence[str], schema: Mapping[str, Any]) -> Any:
    from mcp_toolset.tools.result import mapping_of

    part = mapping_of(mapping_of(schema.get("properties")).get(key))
    types = _types(part, schema, _DEEPEST)
    if "array" in types and not (len(texts) == 1 and isinstance(_json(texts[0]), list)):
        items = _types(mapping_of(part.get("items")), schema, _DEEPEST)
        return [_parsed(text, items) for text in texts]
    return _parsed(_single(key, texts), types)


def _single(key: str, texts: Sequence[str]) -> str:
    if len(texts) > 1:
        raise click.UsageError(f"{key} is given {len(texts)} times, and is not a list; give it once")
    return texts[0]


def _parsed(text: str, types: set[str]) -> Any:
    value = _json(text)
    if value is None and text != "null":
        return text
    found = _type_of(value)
    if not types:
        return value
    if found == "string" or (found not in types and not (found == "integer" and "number" in types)):
        # If no text is accepted either, the tool's own check gives the best message.
        return text if "string" in types or found == "string" else value
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _types(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    from mcp_toolset.tools.result import list_of, mapping_of

    if depth == 0:
        return set()
    said = part.get("type", [])
    found = {said} if isinstance(said, str) else {item for item in said if isinstance(item, str)}
    found |= {_type_of(choice) for choice in list_of(part.get("enum"))}
    if "const" in part:
        found.add(_type_of(part["const"]))
    for branch in [_target(part, root), *(branch for kind in _KINDS for branch in list_of(part.get(kind)))]:
        found |= _types(mapping_of(branch), root, depth - 1)
    return found


def _target(part: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    from mcp_toolset.tools.result import mapping_of

    pointer = part.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/"):
        return None
    found: object = root
    for step in pointer[2:].split("/"):
        found = mapping_of(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found
