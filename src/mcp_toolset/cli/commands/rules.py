"""`mcp-toolset enable`, `disable`, `explain` and `pin`: what tools are switched off, allowed and pinned."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset.cli.callers import CallerOptions, caller_options
from mcp_toolset.cli.options import (
    TargetAccess,
    complete_word,
    dry_run_option,
    examples,
    json_option,
    lock_option,
    reach_options,
    target_and_words,
    target_command,
)
from mcp_toolset.cli.output import Column, Output, answering, complain
from mcp_toolset.cli.target import ConfigFile, Module, ProgramFile, Target, parse_target
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.catalog.pins.lockfile import LockEntry
    from mcp_toolset.cli.mount import MountOptions
    from mcp_toolset.cli.pinning import Comparison
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.call import Identity
    from mcp_toolset.tools.view import ToolBinding


def _switching(function: Callable[..., Any]) -> Callable[..., Any]:
    metavar = "SERVER | SERVER/TOOL | TOOL…"
    names = click.argument("names", nargs=-1, required=True, metavar=metavar, shell_complete=complete_word)
    file = click.argument("file", type=click.Path(path_type=Path), shell_complete=complete_word)
    return file(names(dry_run_option(function)))


@click.command("disable", epilog=examples("mcp-toolset disable mcp.json git/git_reset"))
@_switching
def disable_command(file: Path, names: tuple[str, ...], dry_run: bool) -> None:
    """Switch servers, or tools of a server, off in the configuration FILE.

    A running bridge takes the change over.

    A tool is named by the server's own name for it, as in git/git_reset, or by its public name, as in
    git_reset; git/delete_* is every tool whose name begins with delete_. The file keeps its comments and its
    layout; a backup is beside it.
    """
    _switch(file, names, on=False, dry_run=dry_run)


@click.command("enable", epilog=examples("mcp-toolset enable mcp.json git/git_reset"))
@_switching
def enable_command(file: Path, names: tuple[str, ...], dry_run: bool) -> None:
    """Switch servers, or tools of a server, on again in the configuration FILE; see disable."""
    _switch(file, names, on=True, dry_run=dry_run)


def _switch(file: Path, names: tuple[str, ...], *, on: bool, dry_run: bool) -> None:
    from mcp_toolset.cli.replacing import held, read_regular, replace_text
    from mcp_toolset.cli.switching import listed_in, switched
    from mcp_toolset.config.jsonc import marked_as, without_mark

    if file.suffix == ".py":
        raise ConfigError(
            f"{file}: is a program, and this command changes configuration files (JSON); "
            "in Python write .off(…) or .filtered(exclude=[…]) on its toolset"
        )
    with nullcontext() if dry_run else held(file):
        before = read_regular(file)
        if before is None:
            raise ConfigError(f"{file}: no such file; check the path")
        text, told, listed = without_mark(before), list[str](), listed_in(file)
        for name in names:
            text, now = switched(text, name, str(file), on=on, listed=listed)
            told.append(now)
        after = marked_as(text, before)
        if after != before and not dry_run:
            replace_text(file, before, after, 0o600)
    with answering() as output:
        for now in told:
            output.say(f"{now} already" if after == before else f"would be: {now}" if dry_run else now)


DENIED: Final = 1
_COLUMNS: Final = (
    Column("tool"),
    Column("verdict", state=True, label=False),
    Column("rule", prose=True, label=False),
)
_NO_RULE: Final = "no rule is about it"


@target_command(
    "explain",
    "TARGET [TOOL] | [TOOL] -- COMMAND…",
    "mcp-toolset explain mcp.json",
    "mcp-toolset explain mcp.json github_delete_repo --as ann --role staff",
)
@caller_options
@json_option
@reach_options
@click.pass_context
def explain_command(
    ctx: click.Context, words: Sequence[str], who: CallerOptions, as_json: bool, reach: TargetAccess
) -> int:
    """Say whether a caller may use TOOL, which rule of the permissions decides, and which limits apply.

    Without TOOL it shows every tool. Without a name, role or scope the caller is a client on stdio. A name
    from `auth.tokens` has the roles and scopes of the file. The exit code is 1 if TOOL is denied.
    """
    target, command, rest = target_and_words(ctx, words, more=True)
    if len(rest) > 1:
        raise click.UsageError(f"{rest[1]!r} is one word too many; explain one tool at a time", ctx)
    place = parse_target(target, command)

    async def explain(mounted: ToolsetServer) -> dict[str, Any]:
        caller = who.identity(mounted)
        answer: dict[str, Any] = {"caller": None if caller is None else caller.subject or caller.client or ""}
        if mounted.configured is not None:
            answer["file"] = str(mounted.configured.config.path)
        if caller is not None:
            answer |= {"roles": sorted(caller.roles), "scopes": sorted(caller.scopes)}
        if not rest:
            return {**answer, "tools": [_said(mounted, tool, caller) for tool in _tools(mounted)]}
        return {**answer, **_said(mounted, _tool(mounted, rest[0]), caller)}

    with answering() as output:
        found = reach.run_on(place, explain)
        if as_json:
            output.json(found)
        elif rest:
            _show_verdict(found, output)
        else:
            rows = [[one["tool"], one["verdict"], one["rule"] or _NO_RULE] for one in found["tools"]]
            output.table(_COLUMNS, rows)
    return DENIED if found.get("verdict") == "deny" else 0


def _tools(mounted: ToolsetServer) -> list[ToolBinding]:
    from mcp_toolset.cli.mount import without_fixed

    return without_fixed(mounted.bindings())


def _tool(mounted: ToolsetServer, name: str) -> ToolBinding:
    """The tool of a public name, or of `server/tool`."""
    from mcp_toolset.tools.binding import near_names

    tools = _tools(mounted)
    for binding in tools:
        if name in (
            binding.name,
            binding.asked,
            f"{binding.source}/{binding.definition.name}",
            f"{binding.source}/{binding.name}",
        ):
            return binding
    near = near_names(name, {tool.name: tool for tool in tools})
    mend = f"did you mean {' or '.join(near)}?" if near else "explain without TOOL shows every tool"
    raise TargetError(f"there is no tool {name!r}; {mend}")


def _said(mounted: ToolsetServer, binding: ToolBinding, caller: Identity | None) -> dict[str, Any]:
    told: dict[str, Any] = {"tool": binding.name}
    if binding.source:
        told |= {"server": binding.source, "own": binding.definition.name}
    limits = [
        {"limit": one.key, "value": one.value, "place": one.place}
        for one in mounted.limits_of(binding, caller)
    ]
    policy = mounted.policy
    if policy is None:
        return {**told, "verdict": "allow", "rule": "", "looked": [], "limits": limits}
    verdict = policy.decide(binding, caller)
    looked = [
        {"place": look.section.place, "verdict": look.kind, "pattern": look.pattern or None}
        for look in policy.looks(policy.facts(binding), policy.group(caller))
    ]
    return {**told, "verdict": verdict.kind, "rule": verdict.rule, "looked": looked, "limits": limits}


def _show_verdict(found: dict[str, Any], output: Output) -> None:
    own = f" ({found['server']}/{found['own']})" if "server" in found else ""
    output.say(f"{found['tool']}{own}: {found['verdict']}")
    output.say(f"  rule: {found['rule'] or _NO_RULE}")
    for line in _facts(found):
        output.say(f"  {line}")
    if found["looked"]:
        output.say("Asked, in this order:")
    for look in found["looked"]:
        fits = "no pattern fits" if look["verdict"] is None else f"{look['verdict']}: {look['pattern']}"
        output.say(f"  {look['place']}: {fits}")
    if found["limits"] and found["verdict"] != "deny":
        output.say("Limits:")
        for one in found["limits"]:
            output.say(f"  {one['limit']} {one['value']}: {one['place']}")


def _facts(found: dict[str, Any]) -> Iterator[str]:
    if "file" in found:
        yield f"file: {found['file']}"
    if found["caller"] is None:
        yield "caller: a caller without a name (standard input, no authentication)"
        return
    yield f"caller: {found['caller'] or 'without a name'}"
    for kind in ("roles", "scopes"):
        if found[kind]:
            yield f"{kind}: {', '.join(found[kind])}"


@target_command(
    "pin",
    "TARGET [NAMES]… | [NAMES]… -- COMMAND…",
    "mcp-toolset pin mcp.json",
    "mcp-toolset pin mcp.json --check",
    "mcp-toolset pin mcp.json --accept git/commit",
)
@click.option("--accept", is_flag=True, help="Accept all changes, or those of NAMES.")
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if a definition differs from its pin."
)
@dry_run_option
@lock_option
@json_option
@reach_options
@click.pass_context
def pin_command(
    ctx: click.Context,
    words: Sequence[str],
    accept: bool,
    check: bool,
    dry_run: bool,
    lock: Path | None,
    as_json: bool,
    reach: TargetAccess,
) -> int:
    """Pin the definitions of mounted tools, show later changes, and accept them.

    The first run writes the lock file. From then on, a tool that becomes more powerful, or whose text gains
    a risky part, is held until you accept it here. NAMES are tools, servers or server/tool, with * as a
    wildcard.
    """
    target, command, names = target_and_words(ctx, words, more=True)
    if check and accept:
        raise click.UsageError("--check changes nothing; leave out --accept", ctx)
    if names and not accept:
        raise click.UsageError(f"{names[0]!r} is a name to accept; add --accept", ctx)
    place = parse_target(target, command)
    if lock is not None and isinstance(place, Module | ProgramFile):
        raise click.UsageError(
            "--lock is not for a program, which says RemoteToolset(lock=…); leave it out", ctx
        )

    from mcp_toolset.cli.mount import run

    reach.log()
    options = reach.mounting(lock=lock)
    with answering(as_json=as_json) as output:
        wish = {"accept": accept, "check": check, "dry_run": dry_run}
        return run(lambda: _pin(place, options, output, names=names, **wish))


async def _pin(
    place: Target,
    options: MountOptions,
    output: Output,
    *,
    names: Sequence[str],
    accept: bool,
    check: bool,
    dry_run: bool,
) -> int:
    from mcp_toolset.catalog.pins.lockfile import making_pins
    from mcp_toolset.cli.mount import opened
    from mcp_toolset.cli.pinning import compare, orphans

    making_pins.set(True)
    async with opened(place, options) as server:
        comparisons = compare(server)
        left = orphans(comparisons, _configured(place)) if isinstance(place, ConfigFile) else []
        existed = all(comparison.entry.file.exists for comparison in comparisons)
        written = not check and (accept or not existed)
        report = _report(comparisons, left)
        if written:
            report["accepted"] = _accept(comparisons, left, names, dry_run=dry_run)
    if output.as_json:
        output.json(report)
    else:
        verb = ("would be " if dry_run else "") + ("accepted" if existed else "pinned")
        _show_pins(report, output, verb if written else "")
    if written and options.lock is not None:
        _tell_unread(place, options.lock)
    differs = not existed or any(entry["changes"] or not entry["reached"] for entry in report["servers"])
    return int(check and (differs or bool(left) or any(not one["pinned"] for one in report["servers"])))


def _tell_unread(place: Target, lock: Path) -> None:
    """Say that serving a target does not read the lock file which was written, if it reads another one."""
    from mcp_toolset.cli.mount import LOCK_HERE
    from mcp_toolset.config import load_config
    from mcp_toolset.hub.toolset import lock_path

    config = load_config(place.path, lookups="skip") if isinstance(place, ConfigFile) else None
    read = Path(LOCK_HERE) if config is None else lock_path(config)
    if os.path.realpath(read) == os.path.realpath(lock):
        return
    mend = "serve a configuration whose section `toolset` names it"
    if config is not None:
        named = Path(os.path.relpath(lock, config.path.parent)).as_posix()
        mend = f'write "lock": {json.dumps(named)} into the section `toolset` of {config.path.name}'
    complain(
        f"{lock} is not read where {config.path.name if config else 'this'} is served, {read} is: {mend}"
    )


def _configured(place: ConfigFile) -> list[str]:
    from mcp_toolset.config import load_config

    return [server.name for server in load_config(place.path, lookups="skip").servers]


def _accept(
    comparisons: Sequence[Comparison], left: Sequence[LockEntry], names: Sequence[str], *, dry_run: bool
) -> list[str]:
    from mcp_toolset.cli.pinning import accept, chosen

    accepted: list[str] = []
    for file in dict.fromkeys(comparison.entry.file for comparison in comparisons):
        own = [comparison for comparison in comparisons if comparison.entry.file is file]
        changes = chosen(own, names)
        reached = [one.entry.server for one in own if one.listed is not None and not names]
        gone = [entry.server for entry in left if entry.file is file and not names]
        if not dry_run:
            accept(file, changes, pin=reached, forget=gone)
        accepted += [f"{change.server}/{change.tool}" for change in changes]
    return accepted


def _report(comparisons: Sequence[Comparison], left: Sequence[LockEntry]) -> dict[str, Any]:
    from mcp_toolset.cli.pinning import change_json

    servers = [
        {
            "name": comparison.name,
            "lock": str(comparison.entry.file.path),
            "reached": comparison.listed is not None,
            "pinned": comparison.pinned is not None,
            "tools": len(comparison.listed or ()),
            "changes": [change_json(name, *pair) for name, pair in comparison.changed().items()],
        }
        for comparison in comparisons
    ]
    return {"servers": servers, "not_configured": [entry.server for entry in left]}


def _show_pins(report: dict[str, Any], output: Output, verb: str) -> None:
    from mcp_toolset.cli.pinning import change_lines

    for server in report["servers"]:
        output.text(f"{server['name']}: {_state(server)}")
        for change in server["changes"] if server["pinned"] else ():
            for line in change_lines(change):
                output.text(f"  {line}")
    for name in report["not_configured"]:
        output.text(f"{name}: pinned, but no longer configured")
    if verb:
        lock, accepted = report["servers"][0]["lock"], counted(len(report["accepted"]), "definition")
        output.text(f"{verb} in {lock}: {accepted}")
    elif any(server["changes"] for server in report["servers"]) or report["not_configured"]:
        output.text("accept all of it with --accept, or name what to accept")


def _state(server: dict[str, Any]) -> str:
    if not server["reached"]:
        return "not reached, its pins stay"
    if not server["pinned"]:
        return f"not pinned yet, {counted(server['tools'], 'tool')}"
    changes = len(server["changes"])
    return f"{changes} of its tools differ" if changes else f"as pinned, {counted(server['tools'], 'tool')}"
