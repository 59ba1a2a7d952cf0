"""`mcp-toolset restore`: bring the servers of a client back that `install --adopt` has moved."""

from __future__ import annotations

from contextlib import nullcontext

import click

from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, Machine, Scope, locate
from mcp_toolset.cli.options import dry_run_option, examples, json_option, scope_option

__all__ = ["restore_command"]


@click.command(
    "restore", epilog=examples("mcp-toolset restore cursor --dry-run", "mcp-toolset restore cursor")
)
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@dry_run_option
@scope_option
@click.option("--yes", is_flag=True, expose_value=False, help="As of install; restore never asks.")
@json_option
def restore_command(client: ClientName, dry_run: bool, scope: Scope | None, as_json: bool) -> None:
    """Put the servers back that `install CLIENT --adopt` has moved.

    CLIENT's file becomes what it was before, byte for byte. If the file was changed since then, the servers
    are put back into it and the changes stay. The clients are those of install.
    """
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.installers.adoption import plan_restoration, restore
    from mcp_toolset.cli.installers.replacing import held

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
