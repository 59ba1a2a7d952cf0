"""`mcp-toolset skill`: a `SKILL.md` for an agent that has a shell and no MCP client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_toolset.cli.options import (
    TargetAccess,
    reach_options,
    target_and_words,
    target_command,
    view_arguments,
)
from mcp_toolset.cli.output import answering
from mcp_toolset.cli.target import ConfigFile, ProgramFile, Target, Url, default_name, parse_target
from mcp_toolset.errors import ConfigError, TargetError

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["skill_command"]


@target_command(
    "skill", "[TARGET]", "mcp-toolset skill mcp.json", "mcp-toolset skill mcp.json --folder .claude/skills"
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write NAME/SKILL.md below this folder of skills; else it is printed.",
)
@click.option("--name", help="The name of the skill; by default that of the target.")
@reach_options
@click.pass_context
def skill_command(
    ctx: click.Context, words: Sequence[str], folder: Path | None, name: str | None, reach: TargetAccess
) -> int:
    """Write a SKILL.md with which an agent that has only a shell searches and calls the tools of TARGET.

    Without TARGET it is about the configuration of this folder. The servers are started once, as by `list`.
    The file names those that answer, and has examples with their tools. Write it again when they change.
    """
    from mcp_toolset.config.keys import USUAL_FILES
    from mcp_toolset.extensions.shell_skill.skill_text import SkillFacts, skill_name, skill_text

    usual = next((one for one in USUAL_FILES if Path(one).is_file()), None)
    target, command, _ = target_and_words(ctx, words or ((usual,) if usual is not None else ()))
    if command:
        raise click.UsageError("skill needs a target that has a name; write the command into a file", ctx)
    place = parse_target(target)
    own = skill_name(name or "-".join((default_name(target), *reach.views.values())))
    if name is not None and own != name:
        raise click.UsageError(f"--name {name}: a skill has small letters, digits and dashes; use {own}", ctx)

    async def write(server: ToolsetServer) -> str:
        from mcp_toolset.cli.mount import own_bindings

        words = (_written(place), *view_arguments(ctx))
        return skill_text(SkillFacts(own, words, own_bindings(server), server.statuses()))

    with answering() as output:
        text = reach.run_on(place, write, reasons=False)
        if folder is None:
            output.text(text.rstrip("\n"))
        else:
            output.say(f"{_save(folder / own / 'SKILL.md', text)}: written")
    return 0


def _written(place: Target) -> str:
    """The target as it can be written in any folder."""
    match place:
        case ConfigFile():
            return str(Path(place.path).absolute())
        case ProgramFile():
            path = str(Path(place.path).absolute())
            return path if place.attribute is None else f"{path}:{place.attribute}"
        case Url():
            from mcp_toolset.upstream.secrets import shown_url

            if shown_url(place.url) != place.url:
                raise TargetError(
                    "the URL may have a secret, which would be in the skill; write it into a file"
                )
            return place.url
        case _:
            return str(place)


def _save(path: Path, text: str) -> Path:
    from mcp_toolset.cli.replacing import held, read_regular, replace_text
    from mcp_toolset.extensions.shell_skill.skill_text import MARK

    with held(path):
        before = read_regular(path)
        leads_nowhere = before is None and path.is_symlink()
        if leads_nowhere or (before is not None and MARK not in before):
            raise ConfigError(f"{path}: was written by somebody else; remove it, or give another --name")
        if before != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, before, text, 0o644)
    return path
