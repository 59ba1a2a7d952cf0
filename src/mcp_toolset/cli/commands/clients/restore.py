"""`mcp-toolset restore`: bring the servers of a client back that `install --adopt` has moved."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, Machine, Scope, locate
from mcp_toolset.cli.options import examples, json_option

__all__ = ["restore_command"]


@click.command(
    "restore", epilog=examples("mcp-toolset restore cursor --dry-run", "mcp-toolset restore cursor")
)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option(
    "--scope", type=click.Choice(["project", "user"]), help="Whose file; the client's default if not given."
)
@json_option
def restore_command(client: ClientName, dry_run: bool, scope: Scope | None, as_json: bool) -> None:
    """Bring the servers of CLIENT back that `install --adopt` has moved.

    The file is as it was, byte for byte, unless it was changed since: then the servers are put back into it.
    """
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.installers.adoption import plan_restoration, restore
    from mcp_toolset.cli.installers.replacing import held

    machine = Machine(Path.home(), sys.platform, os.environ, Path.cwd())
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
