"""`mcp-toolset install` and `uninstall`: add a target to a client's configuration, or remove it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, Machine, Scope, locate
from mcp_toolset.cli.options import (
    TargetCommand,
    complete_word,
    dry_run_option,
    examples,
    has_target,
    json_option,
    scope_option,
    serving_arguments,
    serving_options,
    target_and_words,
)
from mcp_toolset.cli.target import default_name, parse_target

if TYPE_CHECKING:
    from mcp_toolset.cli.installers.install import InstallPlan

__all__ = ["install_command", "uninstall_command"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _common(function: _Function) -> _Function:
    for option in (
        dry_run_option,
        click.option("--force", is_flag=True, help="Replace or remove another server of that name."),
        scope_option,
        click.option("--name", help="The server's name in the client; made from the target if not given."),
        json_option,
    ):
        function = option(function)
    return function


@click.command(
    "install",
    cls=TargetCommand,
    options_metavar="[OPTIONS]",
    epilog=examples(
        "mcp-toolset install cursor mcp.json --dry-run",
        "mcp-toolset install claude-code app.py",
        "mcp-toolset install claude-desktop --adopt",
    ),
)
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@click.argument("words", nargs=-1, metavar="TARGET | -- COMMAND…", shell_complete=complete_word)
@click.option(
    "--adopt",
    is_flag=True,
    help="Without TARGET: move the servers that CLIENT has behind this one entry; see restore.",
)
@click.option("--yes", is_flag=True, help="With --adopt: make the change without asking.")
@click.option(
    "--env", "variables", multiple=True, metavar="KEY=VALUE", help="An environment variable for the server."
)
@_common
@serving_options
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
    --adopt the present servers of CLIENT move into a file that mcp-toolset serves behind search.

    CLIENT is claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf, zed, gemini, codex,
    goose or lmstudio.
    """
    if adopt:
        from mcp_toolset.cli.commands.clients.adopt import adopt_servers

        if has_target(ctx, words):
            raise click.UsageError("--adopt takes the client's own servers; leave TARGET out", ctx)
        return adopt_servers(client, scope, dry_run=dry_run, yes=yes, as_json=as_json)
    target, command, _ = target_and_words(ctx, words)
    env = dict(_variable(ctx, variable) for variable in variables)
    parse_target(target, command)

    from mcp_toolset.cli.installers.install import plan_install

    plan = partial(
        plan_install,
        client,
        name or default_name(target, command),
        ["--", *command] if command else [target or ""],
        home=Path.home(),
        platform=sys.platform,
        environ=os.environ,
        project=Path.cwd(),
        scope=scope,
        env=env,
        force=force,
        options=serving_arguments(ctx),
    )
    _carry_out(plan, client, scope, dry_run, as_json)
    return 0


@click.command(
    "uninstall",
    cls=TargetCommand,
    options_metavar="[OPTIONS]",
    epilog=examples("mcp-toolset uninstall cursor mcp.json"),
)
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@click.argument("words", nargs=-1, metavar="[NAME | TARGET | -- COMMAND…]", shell_complete=complete_word)
@_common
@click.pass_context
def uninstall_command(
    ctx: click.Context,
    client: ClientName,
    words: Sequence[str],
    name: str | None,
    scope: Scope | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove a server from CLIENT's configuration, by its name or by its target.

    The clients are those of install.
    """
    if not name and not has_target(ctx, words):
        raise click.UsageError("NAME is missing; give the server's name in the client, or its target", ctx)
    target, command, _ = target_and_words(ctx, words or ([name] if name else words))

    from mcp_toolset.cli.installers.install import plan_uninstall

    plan = partial(
        plan_uninstall,
        client,
        name or default_name(target, command),
        home=Path.home(),
        platform=sys.platform,
        environ=os.environ,
        project=Path.cwd(),
        scope=scope,
        force=force,
    )
    _carry_out(plan, client, scope, dry_run, as_json)


def _variable(ctx: click.Context, text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise click.UsageError(f"--env {key or text!r}: no value; write --env KEY=VALUE", ctx)
    return key, value


def _carry_out(
    make: Callable[[], InstallPlan], client: ClientName, scope: Scope | None, dry_run: bool, as_json: bool
) -> None:
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.installers.install import apply
    from mcp_toolset.cli.installers.replacing import held

    machine = Machine.here()
    with nullcontext() if dry_run else held(locate(CLIENTS[client], scope, machine)[1]):
        plan = make()
        backup = None if dry_run else apply(plan)
    with answering() as output:
        if as_json:
            output.json(
                {
                    "path": str(plan.path),
                    "changed": plan.changed,
                    "applied": plan.changed and not dry_run,
                    "backup": None if backup is None else str(backup),
                    "diff": plan.diff,
                }
            )
        elif dry_run or not plan.changed:
            output.text(plan.diff.rstrip("\n") if plan.changed else f"{plan.path}: nothing to change")
        else:
            kept = f" (before: {backup})" if backup is not None else ""
            output.text(f"{plan.path}: written{kept}; restart {CLIENTS[client].title} to use it")
