"""`mcp-toolset read`: one resource of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.options import (
    Reach,
    json_option,
    reach_options,
    target_and_words,
    target_command,
    written,
)
from mcp_toolset.cli.target import parse_target

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["read_command"]


@target_command(
    "read",
    "TARGET URI | URI -- COMMAND…",
    "mcp-toolset list mcp.json --resources",
    "mcp-toolset read mcp.json file:///notes/today.md",
)
@json_option
@reach_options
@click.pass_context
def read_command(
    ctx: click.Context,
    words: Sequence[str],
    as_json: bool,
    reach: Reach,
) -> None:
    """Read the resource at URI of TARGET and print it; with --json also binary content, else its text."""
    target, command, (uri,) = target_and_words(ctx, words, "URI")
    place = parse_target(target, command)

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run_on

    reach.log()
    told = written(target, command)
    with answering() as output:
        _show(run_on(place, reach.mounting(), lambda server: _read(server, uri, told)), output, as_json)


async def _read(server: ToolsetServer, uri: str, target: str) -> Mapping[str, Any]:
    from mcp_toolset.cli.display.output import TerminalContext
    from mcp_toolset.cli.offered import listed, unknown
    from mcp_toolset.context.offer_kinds import RESOURCES

    try:
        return await server.offering.read(uri, TerminalContext())
    except LookupError:
        raise unknown(
            "resource", uri, [str(entry["uri"]) for entry in await listed(server, RESOURCES)], target
        ) from None


def _show(result: Mapping[str, Any], output: Output, as_json: bool) -> None:
    from mcp_toolset.cli.display.output import block_text

    if as_json:
        output.json(dict(result))
        return
    for part in result.get("contents", ()):
        output.text(block_text({"type": "resource", "resource": part}))
