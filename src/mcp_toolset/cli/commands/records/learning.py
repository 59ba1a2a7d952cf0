"""`mcp-toolset learning`: what the search of a configuration has learnt from use; forget it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from mcp_toolset.cli.options import complete_word, examples, json_option
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.learning import SearchLearning
    from mcp_toolset.config import HubConfig

__all__ = ["learning_command"]

Action = Literal["show", "forget"]


@click.command(
    "learning",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "mcp-toolset learning show mcp.json",
        "mcp-toolset learning forget mcp.json",
        "mcp-toolset learning forget mcp.json --as alice",
    ),
)
@click.argument("action", type=click.Choice(get_args(Action)), metavar="show|forget")
@click.argument(
    "file", type=click.Path(dir_okay=False, path_type=Path), metavar="CONFIG", shell_complete=complete_word
)
@click.option(
    "--as", "name", metavar="NAME", help="Forget what one caller has taught, by name or key; else all."
)
@json_option
@click.pass_context
def learning_command(ctx: click.Context, action: Action, file: Path, name: str | None, as_json: bool) -> int:
    """Show how much the search of a configuration has learnt from calls, or delete it.

    Running servers take the change over within half a minute.
    """
    if name is not None and action == "show":
        raise click.UsageError("--as is for forget; show counts the callers and names none", ctx)

    from mcp_toolset.cli.display.output import answering, log_to_stderr
    from mcp_toolset.config import load_config
    from mcp_toolset.hub.learning import learning_of, learning_path
    from mcp_toolset.security.secrets.vault import Vault

    log_to_stderr(0, quiet=False)
    config = load_config(file, vault=Vault())
    path, tenant = learning_path(config), _tenant(config, name)
    known = learning_of(config) if path.exists() else None
    if known is not None and action == "forget":
        known.forget(tenant)
    callers, pairs = (0, 0) if known is None else known.learnt
    told: dict[str, Any] = {
        "file": str(path),
        "on": config.learning is not None,
        "callers": callers,
        "pairs": pairs,
    }
    with answering(as_json=as_json) as output:
        if as_json:
            output.json(told)
        else:
            output.say(_sentence(told, known, action, name))
    return 0


def _tenant(config: HubConfig, name: str | None) -> str | None:
    from mcp_toolset.cli.callers import known_caller

    return None if name is None else known_caller(name, config.auth, str(config.path), ()).key


def _sentence(told: dict[str, Any], known: SearchLearning | None, action: Action, name: str | None) -> str:
    if known is not None and action == "forget":
        return f"forgotten: {name or 'every caller'}; {told['file']}"
    if known is None or not told["pairs"]:
        off = "" if told["on"] else '; to switch it on, write `"learning": true` into `toolset`'
        return f"nothing is learnt yet{off}"
    pairs = counted(told["pairs"], "pair")
    return f"{counted(told['callers'], 'caller')}, {pairs} of a word and a tool; {told['file']}"
