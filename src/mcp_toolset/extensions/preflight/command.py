"""`mcp-toolset preflight`: whether an agent has what it needs, for pipelines and before a long run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from mcp_toolset.cli import options
from mcp_toolset.cli.callers import CallerOptions, caller_options
from mcp_toolset.cli.output import Column, Output, answering, one_line
from mcp_toolset.cli.target import ConfigFile, Target, parse_target
from mcp_toolset.errors import ToolsetError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.extensions.preflight.checks import Check
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["preflight_command"]

_COLUMNS: Final = (Column("needed"), Column("state", state=True), Column("note", prose=True, label=False))


@options.target_command(
    "preflight",
    "TARGET | -- COMMAND…",
    "mcp-toolset preflight mcp.json",
    "mcp-toolset preflight mcp.json --expect github --expect 'git/*' --expect jira_search",
    "mcp-toolset preflight mcp.json --expect-file agent.needs --unattended --json",
)
@click.option(
    "--expect",
    "expected",
    metavar="NAME",
    multiple=True,
    shell_complete=options.complete_word,
    help="A server, a tool, or a pattern such as git/*; repeatable.",
)
@click.option(
    "--expect-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with a name on each line; # begins a comment.",
)
@click.option("--unattended", is_flag=True, help="A tool that asks for an approval counts as refused.")
@click.option(
    "--github/--no-github",
    default=None,
    help="Annotate faults for GitHub Actions, as where GITHUB_ACTIONS is true.",
)
@caller_options
@options.json_option
@options.reach_options
@click.pass_context
def preflight_command(
    ctx: click.Context,
    words: Sequence[str],
    expected: Sequence[str],
    expect_file: Path | None,
    unattended: bool,
    github: bool | None,
    who: CallerOptions,
    as_json: bool,
    reach: options.TargetAccess,
) -> int:
    """Say whether the servers and tools that an agent needs are there, by the exit code.

    Without --expect all servers are needed, and every tool as it was pinned. The exit code is 0 if all is
    there, 10 if a server is down, 11 if one needs a login, 12 if a tool is missing, 13 if a definition
    differs from its pin, 14 if a rule refuses a tool, 15 if an entry is misconfigured; of several the
    highest. A server is not started if no expected name can be of it.
    """
    from mcp_toolset.extensions.preflight.checks import CODES, exit_code

    target, command, _ = options.target_and_words(ctx, words)
    place = parse_target(target, command)
    annotates = os.environ.get("GITHUB_ACTIONS") == "true" if github is None else github
    names = list(dict.fromkeys((*expected, *_read(expect_file, ctx))))
    odd = [name for name in names if name[:1] in ("", ":", "#") or not name.isprintable()]
    if odd:
        raise click.UsageError(f"{odd[0]!r} is no name of a server or tool; write one as in `list`", ctx)
    with answering(as_json=as_json) as output:
        try:
            checks = _checked(place, names, who, unattended, reach)
        except ToolsetError as fault:
            if annotates:
                _annotate(place, "preflight", str(fault), "")
            raise
        code = exit_code(checks)
        if as_json:
            output.json({"ready": not code, "exit_code": code, "checks": [one.as_json() for one in checks]})
        else:
            _show(checks, code, output)
        for one in checks if annotates else ():
            if CODES[one.state]:
                _annotate(place, f"{one.needed}: {one.state}", one.note or one.state, one.server)
    return code


def _read(file: Path | None, ctx: click.Context) -> list[str]:
    if file is None:
        return []
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise click.UsageError(f"--expect-file {file}: cannot be read ({fault})", ctx) from None
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    if not names:
        raise click.UsageError(f"--expect-file {file}: names nothing; write a name on each line", ctx)
    return names


def _checked(
    place: Target, names: Sequence[str], who: CallerOptions, unattended: bool, reach: options.TargetAccess
) -> list[Check]:
    from mcp_toolset.cli.mount import in_view, read_once
    from mcp_toolset.config import load_config
    from mcp_toolset.extensions.preflight.checks import Preflight, needed_servers

    if not isinstance(place, ConfigFile):

        async def check(server: ToolsetServer) -> list[Check]:
            return Preflight(server, who.identity(server), unattended).checks(names)

        return reach.run_on(place, check, reasons=None)
    reach.log()
    # First without secrets: those of servers that are not needed are not looked up.
    config, views = load_config(place.path, lookups="skip"), reach.views
    own = in_view(config, views) if views else None
    # A view may have other names for its tools, which do not say of which server they are.
    needed = needed_servers(config, names) if own is None else own or None
    config = load_config(place.path, needed=needed)

    def take(server: ToolsetServer) -> list[Check]:
        return Preflight(server, who.identity(server), unattended, config, own).checks(names)

    return read_once(config, reach.timeout, take, views)


def _show(checks: Sequence[Check], code: int, output: Output) -> None:
    if checks:
        output.table(_COLUMNS, [(one.needed, one.state, one.note or _tools(one)) for one in checks])
    there = sum(one.state == "ok" for one in checks)
    what = f"{there} of {len(checks)} needed are there" if code else "all that is needed is there"
    output.say(f"{what}; exit code {code}")


def _tools(check: Check) -> str:
    return counted(len(check.tools), "tool") if check.tools else ""


def _annotate(place: Target, title: str, text: str, server: str) -> None:
    """Write a workflow command of GitHub Actions to stderr, which the runner reads as it does stdout."""
    properties = {"title": title}
    if isinstance(place, ConfigFile):
        properties = {"file": place.path, "line": str(_line(place.path, server)), **properties}
    written = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    sys.stderr.write(f"::error {written}::{_escaped(text)}\n")
    sys.stderr.flush()


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{more}" else sign for sign in one_line(text))


def _line(path: str, server: str) -> int:
    """The line of a server's entry; the first one where that cannot be told."""
    from mcp_toolset.config.jsonc import decode, line_and_column
    from mcp_toolset.config.keys import named_servers
    from mcp_toolset.config.placement import config_text

    try:
        text = config_text(path)
        table = decode(text, path)
    except ToolsetError:
        return 1
    found = named_servers(cast("dict[str, Any]", table)) if isinstance(table, dict) else None
    return line_and_column(text, (*found[0], server))[0] if found is not None and server else 1
