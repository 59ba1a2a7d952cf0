"""`mcp-toolset pack`: a target as an MCP Bundle, which a client installs from one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.options import (
    json_option,
    target_and_words,
    target_command,
    view_arguments,
    view_options,
)
from mcp_toolset.cli.output import Output, answering
from mcp_toolset.cli.target import parse_target
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.packing import Bundle


@target_command(
    "pack",
    "TARGET",
    "mcp-toolset pack app.py",
    "mcp-toolset pack app.py --ask API_KEY --ask NOTES:folder",
    "mcp-toolset pack mcp.json -o team.mcpb",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file to write; NAME.mcpb in this folder if not given.",
)
@click.option(
    "--ask",
    multiple=True,
    metavar="NAME[:KIND]",
    help="A variable that the user is asked for: a secret, text, folder or file.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NAME",
    help="A value of the configuration that is no secret, and stays in it.",
)
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A further file or folder beside the target.",
)
@click.option(
    "--requires", multiple=True, metavar="PACKAGE", help="A further Python package, as pip takes it."
)
@click.option(
    "--packages",
    is_flag=True,
    help="Put the Python packages into the bundle, for this system and Python alone.",
)
@click.option("--name", help="The bundle's name; from pyproject.toml or the target if not given.")
@click.option("--version", metavar="VERSION", help="The version of the bundle, such as 1.0.0.")
@click.option("--description", metavar="TEXT", help="The purpose of the bundle, in one sentence.")
@click.option("--author", metavar="TEXT", help="The author of the bundle.")
@view_options
@json_option
@click.pass_context
def pack_command(
    ctx: click.Context,
    words: Sequence[str],
    output: Path | None,
    views: Mapping[str, str],
    as_json: bool,
    **wishes: Any,
) -> None:
    """Write TARGET as an MCP Bundle (.mcpb), which clients such as Claude Desktop install from one file.

    The bundle has the Python files that TARGET imports from its folder, or the configuration without its
    secrets: the client asks the user for those, and for folders. uv installs the packages when it starts.
    """
    from mcp_toolset.cli.packing import Wishes, pack_target

    target, command, _ = target_and_words(ctx, words)
    with answering(as_json=as_json) as out:
        wished = Wishes(**wishes, views=views, serving=view_arguments(ctx))
        bundle = pack_target(parse_target(target, command), target or "", wished)
        path = output or Path(f"{bundle.about['name']}.mcpb")
        size = bundle.write(path)
        if as_json:
            out.json(
                {
                    "path": str(path),
                    "bytes": size,
                    "files": sorted(bundle.files),
                    "manifest": bundle.manifest(),
                    "needs": list(_needs(bundle)),
                    "unasked": list(bundle.unasked),
                }
            )
        else:
            _tell(out, bundle, path, size)


def _tell(out: Output, bundle: Bundle, path: Path, size: int) -> None:
    out.say(f"{path}: {counted(len(bundle.files), 'file')} of {bundle.target}, {size / 1000:.1f} kB")
    if bundle.questions:
        out.say("asks for " + ", ".join(f"{one.variable} ({one.kind})" for one in bundle.questions))
    out.say("needs " + ", ".join(_needs(bundle)))
    if bundle.unasked:
        named = ", ".join(bundle.unasked)
        out.say(f"the code reads {named}, which the user is not asked for; see --ask")


def _needs(bundle: Bundle) -> list[str]:
    starts = "uv" if not bundle.packages else bundle.manifest()["server"]["mcp_config"]["command"]
    return list(dict.fromkeys([starts, *bundle.programs]))
