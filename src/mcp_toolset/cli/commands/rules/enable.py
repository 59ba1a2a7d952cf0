"""`mcp-toolset enable` and `disable`: switch a server of a configuration, or a tool of one, on or off."""

from __future__ import annotations

from pathlib import Path

import click

from mcp_toolset.cli.options import complete_word, examples

__all__ = ["disable_command", "enable_command"]


@click.command("disable", epilog=examples("mcp-toolset disable mcp.json git/git_reset"))
@click.argument("file", type=click.Path(path_type=Path), shell_complete=complete_word)
@click.argument(
    "names", nargs=-1, required=True, metavar="SERVER | SERVER/TOOL | TOOL…", shell_complete=complete_word
)
def disable_command(file: Path, names: tuple[str, ...]) -> None:
    """Switch servers, or tools of a server, off in the configuration FILE.

    A running bridge takes the change over.

    A tool is named by the server's own name for it, as in git/git_reset, or by its public name, as in
    git_reset; git/delete_* is every tool whose name begins with delete_. The file keeps its comments and its
    layout; a backup is beside it.
    """
    _switch(file, names, on=False)


@click.command("enable", epilog=examples("mcp-toolset enable mcp.json git/git_reset"))
@click.argument("file", type=click.Path(path_type=Path), shell_complete=complete_word)
@click.argument(
    "names", nargs=-1, required=True, metavar="SERVER | SERVER/TOOL | TOOL…", shell_complete=complete_word
)
def enable_command(file: Path, names: tuple[str, ...]) -> None:
    """Switch servers, or tools of a server, on again in the configuration FILE; see disable."""
    _switch(file, names, on=True)


def _switch(file: Path, names: tuple[str, ...], *, on: bool) -> None:
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.installers.replacing import held, read_regular, replace_text
    from mcp_toolset.cli.switching import listed_in, switched
    from mcp_toolset.config.jsonc import marked_as, without_mark
    from mcp_toolset.errors import ConfigError

    if file.suffix == ".py":
        raise ConfigError(
            f"{file}: is a program, and this command changes configuration files (JSON); "
            "in Python write .off(…) or .filtered(exclude=[…]) on its toolset"
        )
    with held(file):
        before = read_regular(file)
        if before is None:
            raise ConfigError(f"{file}: no such file; check the path")
        text, told, listed = without_mark(before), list[str](), listed_in(file)
        for name in names:
            text, now = switched(text, name, str(file), on=on, listed=listed)
            told.append(now)
        after = marked_as(text, before)
        if after != before:
            replace_text(file, before, after, 0o600)
    with answering() as output:
        for now in told:
            output.say(now if after != before else f"{now} already")
