"""`install CLIENT --adopt`: move the servers of a client behind one entry of ours."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, Machine, Scope, locate
from mcp_toolset.errors import ToolsetError
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.cli.installers.adoption import Adoption

__all__ = ["adopt_servers"]


def adopt_servers(client: ClientName, scope: Scope | None, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Show what adopting changes, ask on a terminal, and carry it out."""
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.installers.adoption import adopt, plan_adoption
    from mcp_toolset.cli.installers.replacing import held

    machine = Machine.here()
    with (
        nullcontext() if dry_run else held(locate(CLIENTS[client], scope, machine)[1]),
        answering(as_json=as_json) as output,
    ):
        plan = plan_adoption(client, machine, scope)
        if not as_json:
            _show(plan, output)
        agreed = not dry_run and (yes or _agreed(as_json))
        if agreed:
            adopt(plan, client, machine)
        if as_json:
            output.json(_as_json(plan, agreed))
        elif agreed:
            output.say(f"{plan.path}: written; restart {CLIENTS[client].title}")
            output.say(f"undo it with: mcp-toolset restore {client}{f' --scope {scope}' if scope else ''}")
    if agreed:
        _read_once(plan.hub)
    return 0


def _read_once(hub: Path) -> None:
    """Start the servers once, so that what they list is known to the first session."""
    from mcp_toolset.cli.costs import read_once
    from mcp_toolset.cli.display.output import complain
    from mcp_toolset.cli.display.servers import report_down
    from mcp_toolset.config import load_config

    try:
        read_once(load_config(hub), None, report_down)
    except ToolsetError as fault:
        complain(str(fault))


def _agreed(as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("no person can be asked here; add --yes to make the change, or --dry-run")
    return click.confirm("Make this change?", err=True)


def _show(plan: Adoption, output: Output) -> None:
    from mcp_toolset.cli.display.output import one_line

    output.text(plan.diff.rstrip("\n"))
    output.say(f"{counted(len(plan.names), 'server')} → {plan.hub}, behind search:")
    for name, own in plan.names.items():
        output.say("  " + one_line(name if name == own else f"{name} as {own}, as the name is taken"))
    for name, reason in plan.left.items():
        output.say("  " + one_line(f"{name.strip() or '(no name)'} stays: {reason}"))


def _as_json(plan: Adoption, applied: bool) -> dict[str, object]:
    return {
        "path": str(plan.path),
        "applied": applied,
        "servers": dict(plan.names),
        "left": dict(plan.left),
        "file": str(plan.hub),
        "diff": plan.diff,
    }
