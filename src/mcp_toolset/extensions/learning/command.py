"""`mcp-toolset learning`: what the search of a configuration has learnt from use; forget it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_toolset.cli.options import Commands, complete_word, examples, json_option
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig

__all__ = ["learning_command"]

_EXAMPLES = ("mcp-toolset learning forget mcp.json", "mcp-toolset learning forget mcp.json --as alice")

_config = click.argument(
    "file", type=click.Path(dir_okay=False, path_type=Path), metavar="CONFIG", shell_complete=complete_word
)


@click.group("learning", cls=Commands, epilog=examples("mcp-toolset learning show mcp.json", *_EXAMPLES))
def learning_command() -> None:
    """Show how much the search of a configuration has learnt from calls, or delete it."""


@learning_command.command("show", epilog=examples("mcp-toolset learning show mcp.json"))
@_config
@json_option
def show_command(file: Path, as_json: bool) -> None:
    """Show how many pairs of a word and a tool the search of CONFIG has learnt, and from how many callers."""
    _answer(file, as_json)


@learning_command.command("forget", epilog=examples(*_EXAMPLES))
@_config
@click.option(
    "--as", "name", metavar="NAME", help="Forget what one caller has taught, by name or key; else all."
)
@json_option
def forget_command(file: Path, name: str | None, as_json: bool) -> None:
    """Delete what the search of CONFIG has learnt.

    Running servers take the change over within half a minute.
    """
    _answer(file, as_json, forget=True, name=name)


def _answer(file: Path, as_json: bool, *, forget: bool = False, name: str | None = None) -> None:
    from mcp_toolset.cli.output import answering, log_to_stderr
    from mcp_toolset.config import load_config
    from mcp_toolset.extensions.learning.extension import SearchLearning
    from mcp_toolset.extensions.learning.place import learning_path
    from mcp_toolset.extensions.learning.settings import LearningSettings
    from mcp_toolset.security.secrets.vault import Vault

    log_to_stderr(0, quiet=False)
    config = load_config(file, vault=Vault())
    stated: LearningSettings = config.extensions.get("learning") or LearningSettings()
    path, tenant = stated.path or learning_path(str(config.path)), _tenant(config, name)
    known = SearchLearning.stated(stated, str(config.path)) if path.exists() else None
    if known is not None and forget:
        known.forget(tenant)
    callers, pairs = (0, 0) if known is None else known.learnt
    on = bool(config.extensions.get("learning"))
    with answering(as_json=as_json) as output:
        if as_json:
            output.json({"file": str(path), "on": on, "callers": callers, "pairs": pairs})
        elif known is not None and forget:
            output.say(f"forgotten: {name or 'every caller'}; {path}")
        elif not pairs:
            off = "" if on else '; to switch it on, write `"learning": true` into `toolset`'
            output.say(f"nothing is learnt yet{off}")
        else:
            told = f"{counted(callers, 'caller')}, {counted(pairs, 'pair')} of a word and a tool"
            output.say(f"{told}; {path}")


def _tenant(config: HubConfig, name: str | None) -> str | None:
    from mcp_toolset.cli.callers import known_caller

    return None if name is None else known_caller(name, config.callers, str(config.path), ()).key
