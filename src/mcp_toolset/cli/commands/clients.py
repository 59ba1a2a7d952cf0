"""`mcp-toolset install` and `uninstall`, and `list --clients`: the servers of clients on this machine."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from mcp_toolset._index import marked, part
from mcp_toolset.cli import options
from mcp_toolset.cli.clients import CLIENTS, ClientName, Machine, Scope, locate
from mcp_toolset.cli.output import Column, Output, answering, complain, one_line
from mcp_toolset.cli.target import ConfigFile, default_name, parse_target
from mcp_toolset.errors import ToolsetError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.install import Adoption, Discovery, FoundServer, InstallPlan
    from mcp_toolset.server.server import ToolsetServer

_COLUMNS: Final = (
    Column("client"),
    Column("server"),
    Column("starts", prose=True),
    Column("tokens"),
    Column("note", prose=True),
)


def show_clients(output: Output, tokens: bool, timeout: float | None) -> None:
    """Show the servers that clients have, by the files of the user and of the project in this folder."""
    from mcp_toolset.cli.install import discovered

    found = discovered(Machine.here())
    for fault in found.faults:
        complain(fault)
    costs: dict[str, int] = {}
    if tokens:
        from mcp_toolset.cli.mount import tokens_of_servers

        distinct = found.distinct()
        # A configuration has no server without a name.
        entries = {name: dict(one.entry or {}) for name, one in distinct.items() if name.strip()}
        counts = tokens_of_servers(entries, timeout)
        costs = {distinct[name].key or "": count for name, count in counts.items()}
    rows = [_facts(server, found, costs) for server in found.servers]
    if output.as_json:
        output.json(rows)
    elif rows:
        _show_found(rows, found, output)
    else:
        titles = ", ".join(client.title for client in CLIENTS.values())
        output.say(f"no client here has a server; looked for {titles}")


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
    """That the program is missing; empty if it is there, or if the entry does not start it as written."""
    entry = server.entry or {}
    command, env = entry.get("command"), entry.get("env")
    if server.note or server.behind or not isinstance(command, str) or "${" in command:
        return ""
    path = cast("dict[str, object]", env).get("PATH") if isinstance(env, dict) else None
    found = shutil.which(command, path=None if path is None else str(path))
    return "" if found else "command not found; see mcp-toolset check"


def _start(server: FoundServer) -> str:
    """The command line or the address of a server, without secrets."""
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


def _show_found(rows: list[dict[str, Any]], found: Discovery, output: Output) -> None:
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
        + (f" ({distinct} different)" if 0 < distinct < entries else "")
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


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _common(function: _Function) -> _Function:
    for option in (
        options.dry_run_option,
        click.option("--force", is_flag=True, help="Replace or remove another server of that name."),
        options.scope_option,
        click.option("--name", help="The server's name in the client; made from the target if not given."),
        options.json_option,
    ):
        function = option(function)
    return function


@click.command(
    "install",
    cls=options.TargetCommand,
    options_metavar="[OPTIONS]",
    epilog=options.examples(
        "mcp-toolset install cursor mcp.json --dry-run",
        "mcp-toolset install claude-code app.py",
        "mcp-toolset install claude-desktop --adopt",
    ),
)
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@click.argument("words", nargs=-1, metavar="TARGET | -- COMMAND…", shell_complete=options.complete_word)
@click.option(
    "--adopt", is_flag=True, help="Without TARGET: move the servers that CLIENT has behind this one entry."
)
@click.option("--yes", is_flag=True, help="With --adopt: make the change without asking.")
@click.option(
    "--env", "variables", multiple=True, metavar="KEY=VALUE", help="An environment variable for the server."
)
@_common
@options.serving_options
@click.pass_context
def install_command(
    ctx: click.Context,
    client: ClientName,
    words: Sequence[str],
    adopt: bool,
    yes: bool,
    variables: Sequence[str],
    name: str | None,
    scope: Scope | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **serving: Any,
) -> int:
    """Have CLIENT start `mcp-toolset serve TARGET`. A backup of the changed file is kept.

    The options of serve go into the entry. Paths in a project's file are relative to its folder. With
    --adopt the present servers of CLIENT move into a file that mcp-toolset serves: listed or behind search,
    as fits the client and the number of tools.

    CLIENT is claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf, zed, gemini, codex,
    goose, lmstudio, copilot-cli, opencode, cline, cline-cli, kiro or junie.
    """
    if adopt:
        if options.has_target(ctx, words):
            raise click.UsageError("--adopt takes the client's own servers; leave TARGET out", ctx)
        options.refuse_given(
            ctx,
            ("name", "force", "variables", *options.serving_names()),
            "has no effect on --adopt; leave it out",
        )
        return adopt_servers(client, scope, dry_run=dry_run, yes=yes, as_json=as_json)
    target, command, _ = options.target_and_words(ctx, words)
    env: dict[str, str] = {}
    for variable in variables:
        key, sign, env[key] = variable.partition("=")
        if not sign or not key:
            raise click.UsageError(f"--env {key or variable!r}: no value; write --env KEY=VALUE", ctx)
    place = parse_target(target, command)
    if views := {key: serving[key] for key in marked("view_option") if serving[key]}:
        from mcp_toolset.cli.mount import MountOptions, in_view, mount

        # An entry with a view that is not there could not start.
        if isinstance(place, ConfigFile):
            from mcp_toolset.config import load_config

            in_view(load_config(place.path, lookups="skip"), views)
        else:
            mount(place, MountOptions(extensions=views).looking)

    from mcp_toolset.cli.install import plan_install

    plan = partial(
        plan_install,
        client,
        name or default_name(target, command),
        ["--", *command] if command else [target or ""],
        env=env,
        force=force,
        options=options.serving_arguments(ctx),
    )
    _carry_out(plan, client, scope, dry_run, as_json)
    return 0


@click.command(
    "uninstall",
    cls=options.TargetCommand,
    options_metavar="[OPTIONS]",
    epilog=options.examples(
        "mcp-toolset uninstall cursor mcp.json", "mcp-toolset uninstall cursor --adopted"
    ),
)
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@click.argument(
    "words", nargs=-1, metavar="[NAME | TARGET | -- COMMAND…]", shell_complete=options.complete_word
)
@click.option(
    "--adopted", is_flag=True, help="Put the servers back that install --adopt has moved, without a question."
)
@_common
@click.pass_context
def uninstall_command(
    ctx: click.Context,
    client: ClientName,
    words: Sequence[str],
    adopted: bool,
    name: str | None,
    scope: Scope | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove a server from CLIENT's configuration, by its name or by its target.

    With --adopted the file becomes what it was before, byte for byte. If it was changed since then, the
    servers are put back into it and the changes stay. The clients are those of install.
    """
    if adopted:
        if options.has_target(ctx, words):
            raise click.UsageError("--adopted puts all servers back; leave NAME out", ctx)
        options.refuse_given(ctx, ("name", "force"), "has no effect on --adopted; leave it out")
        _put_back(client, scope, dry_run=dry_run, as_json=as_json)
        return
    if not name and not options.has_target(ctx, words):
        raise click.UsageError("NAME is missing; give the server's name in the client, or its target", ctx)
    target, command, _ = options.target_and_words(ctx, words or ([name] if name else words))

    from mcp_toolset.cli.install import plan_uninstall

    plan = partial(plan_uninstall, client, name or default_name(target, command), force=force)
    _carry_out(plan, client, scope, dry_run, as_json)


def _carry_out(
    make: Callable[..., InstallPlan], client: ClientName, scope: Scope | None, dry_run: bool, as_json: bool
) -> None:
    from mcp_toolset.cli.install import apply
    from mcp_toolset.cli.replacing import held

    machine = Machine.here()
    with nullcontext() if dry_run else held(locate(CLIENTS[client], scope, machine)[1]):
        plan = make(machine=machine, scope=scope)
        backup = None if dry_run else apply(plan)
    with answering() as output:
        if as_json:
            done = {"changed": plan.changed, "applied": plan.changed and not dry_run}
            kept = None if backup is None else str(backup)
            output.json({"path": str(plan.path), **done, "backup": kept, "diff": plan.diff})
        elif dry_run or not plan.changed:
            output.text(plan.diff.rstrip("\n") if plan.changed else f"{plan.path}: nothing to change")
        else:
            kept = f" (before: {backup})" if backup is not None else ""
            output.text(f"{plan.path}: written{kept}; restart {CLIENTS[client].title} to use it")


def adopt_servers(client: ClientName, scope: Scope | None, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    from mcp_toolset.cli.install import adopt, plan_adoption
    from mcp_toolset.cli.replacing import held

    machine = Machine.here()
    with (
        nullcontext() if dry_run else held(locate(CLIENTS[client], scope, machine)[1]),
        answering(as_json=as_json) as output,
    ):
        plan = plan_adoption(client, machine, scope)
        if not as_json:
            _show_plan(plan, output)
        applied = not dry_run and options.agreed("Make this change?", yes=yes, as_json=as_json)
        if applied:
            adopt(plan, client, machine)
        if as_json:
            servers, left = dict(plan.names), dict(plan.left)
            done = {"path": str(plan.path), "applied": applied, "servers": servers, "left": left}
            output.json({**done, "file": str(plan.hub), "diff": plan.diff})
        elif applied:
            output.say(f"{plan.path}: written; restart {CLIENTS[client].title}")
            where = f" --scope {scope}" if scope else ""
            output.say(f"undo it with: mcp-toolset uninstall {client} --adopted{where}")
    if applied:
        wires = _read_once(plan.hub)
        if (fit := part("fit")) is not None and wires and not as_json:
            with answering() as output:
                output.say(one_line(fit.told(CLIENTS[client].title, wires)))
    return 0


def _read_once(hub: Path) -> list[dict[str, Any]]:
    """Start the servers of a hub once, which keeps their lists; the tools that they have."""
    from mcp_toolset.cli.mount import read_once, report_down
    from mcp_toolset.config import load_config

    def read(server: ToolsetServer) -> list[dict[str, Any]]:
        report_down(server)
        return [one.to_wire() for one in server.bindings()]

    try:
        return read_once(load_config(hub, lookups="refuse"), None, read)
    except ToolsetError as fault:
        complain(str(fault))
        return []


def _show_plan(plan: Adoption, output: Output) -> None:
    output.text(plan.diff.rstrip("\n"))
    output.say(f"{counted(len(plan.names), 'server')} → {plan.hub}, behind this one entry:")
    for name, own in plan.names.items():
        output.say("  " + one_line(name if name == own else f"{name} as {own}, as the name is taken"))
    for name, reason in plan.left.items():
        output.say("  " + one_line(f"{name.strip() or '(no name)'} stays: {reason}"))


def _put_back(client: ClientName, scope: Scope | None, *, dry_run: bool, as_json: bool) -> None:
    from mcp_toolset.cli.install import plan_restoration, restore
    from mcp_toolset.cli.replacing import held

    machine = Machine.here()
    with nullcontext() if dry_run else held(locate(CLIENTS[client], scope, machine)[1]):
        plan = plan_restoration(client, machine, scope)
        stay = [] if dry_run else restore(plan, machine)
    with answering(as_json=as_json) as output:
        if as_json:
            facts = {"path": str(plan.path), "exact": plan.exact, "applied": not dry_run}
            output.json({**facts, "servers": [*plan.record.names], "stay": stay, "diff": plan.diff})
            return
        if plan.diff:
            output.text(plan.diff.rstrip("\n"))
        if dry_run:
            return
        how = "as it was" if plan.exact else "with its servers again; it had been changed since"
        output.say(f"{plan.path}: {how}; restart {CLIENTS[client].title}")
        for name in stay:
            output.say(f"{name} was edited in {plan.record.hub}, and stays there")
