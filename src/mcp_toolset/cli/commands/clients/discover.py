"""`mcp-toolset discover`: the servers that the clients on this machine have, and what they cost a model."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import click

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.installers.clients import CLIENTS, Machine
from mcp_toolset.cli.options import examples, json_option, timeout_option
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.cli.installers.discovery import Discovery, FoundServer

__all__ = ["discover_command"]

_COLUMNS: Final = (
    Column("client"),
    Column("server"),
    Column("starts", prose=True),
    Column("tokens"),
    Column("note", prose=True),
)


@click.command("discover", epilog=examples("mcp-toolset discover", "mcp-toolset discover --tokens --json"))
@click.option("--tokens", is_flag=True, help="Start every server once, to count what its tools cost a model.")
@timeout_option
@json_option
def discover_command(tokens: bool, timeout: float | None, as_json: bool) -> None:
    """List the servers that the clients on this machine have, and which of them several clients have.

    It reads the files of the user, and those of the project in this folder. Without --tokens it starts no
    server.
    """
    from mcp_toolset.cli.display.output import answering, complain
    from mcp_toolset.cli.installers.discovery import discovered

    machine = Machine.here()
    found = discovered(machine)
    for fault in found.faults:
        complain(fault)
    with answering(as_json=as_json) as output:
        costs = _counted(found, timeout) if tokens else {}
        rows = [_facts(server, found, costs) for server in found.servers]
        if as_json:
            output.json(rows)
        elif rows:
            _show(rows, found, output)
        else:
            output.say(f"no client here has a server; looked for {', '.join(_titles())}")


def _titles() -> list[str]:
    return [client.title for client in CLIENTS.values()]


def _counted(found: Discovery, timeout: float | None) -> dict[str, int]:
    """The tokens that the tools of each server cost when they are listed, by what tells servers apart."""
    from mcp_toolset.cli.costs import tokens_of_servers

    distinct = found.distinct()
    # A configuration has no server without a name.
    entries = {name: dict(one.entry or {}) for name, one in distinct.items() if name.strip()}
    costs = tokens_of_servers(entries, timeout)
    return {distinct[name].key or "": cost for name, cost in costs.items()}


def _facts(server: FoundServer, found: Discovery, costs: Mapping[str, int]) -> dict[str, Any]:
    return {
        "client": CLIENTS[server.client].title,
        "scope": server.scope,
        "file": str(server.path),
        "server": server.name,
        "starts": _start(server),
        "tokens_estimate": costs.get(server.key or "-"),
        "adopted": server.behind,
        "note": server.note,
        "fault": _fault(server),
        "also_in": found.also_in(server) if server.key else [],
    }


def _fault(server: FoundServer) -> str:
    """That the program is missing; empty if it is there, or not started by this entry as it is written."""
    entry = server.entry or {}
    command, env = entry.get("command"), entry.get("env")
    if server.note or server.behind or not isinstance(command, str) or "${" in command:
        return ""
    path = cast("dict[str, object]", env).get("PATH") if isinstance(env, dict) else None
    found = shutil.which(command, path=None if path is None else str(path))
    return "" if found else "command not found; see mcp-toolset doctor"


def _start(server: FoundServer) -> str:
    """How the server is started or where it is, without what may be secret."""
    from mcp_toolset.config.variables import PLAIN_VARIABLES
    from mcp_toolset.upstream.secrets import Secrets, secret_arguments, shown_url

    entry = server.entry or {}
    if url := entry.get("url") or entry.get("httpUrl") or entry.get("serverUrl"):
        return shown_url(str(url))
    words = [str(word) for word in (entry.get("command", ""), *(entry.get("args") or ()))]
    env = entry.get("env")
    given = cast("dict[str, object]", env) if isinstance(env, dict) else {}
    values = (str(value) for name, value in given.items() if name not in PLAIN_VARIABLES)
    return Secrets.of([*secret_arguments(words), *values]).scrubbed(" ".join(words))


def _show(rows: list[dict[str, Any]], found: Discovery, output: Output) -> None:
    cells = [
        (
            row["client"] if row["scope"] == "user" else f"{row['client']} (project)",
            row["server"],
            row["starts"],
            "" if row["tokens_estimate"] is None else str(row["tokens_estimate"]),
            _note(row),
        )
        for row in rows
    ]
    output.table(_COLUMNS, cells)
    clients = Counter(server.client for server in found.servers)
    distinct, several = len(found.distinct()), sum(map(bool, map(found.also_in, found.distinct().values())))
    entries = len(found.servers)
    output.say(
        f"{counted(entries, 'server')} in {counted(len(clients), 'client')}"
        + (f" ({distinct} different)" if distinct < entries else "")
        + (f", {several} of them in several clients" if several else "")
    )
    if any(row["tokens_estimate"] for row in rows):
        told = sum(row["tokens_estimate"] or 0 for row in rows if not row["adopted"])
        output.say(f"listed: about {told} tokens; behind search a client lists about 450 for all of them")
    if any(not row["adopted"] and not row["note"] for row in rows):
        output.say("move them behind one entry: mcp-toolset install CLIENT --adopt")


def _note(row: Mapping[str, Any]) -> str:
    parts = [row["note"], row["fault"], "behind mcp-toolset" if row["adopted"] else ""]
    parts += [f"also in {', '.join(row['also_in'])}"] if row["also_in"] else []
    return "; ".join(filter(None, parts))
