"""`mcp-toolset get`: one prompt of a target, with its arguments filled in."""

from __future__ import annotations

import sys
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
from mcp_toolset.errors import CallError

if TYPE_CHECKING:
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["get_command"]


@target_command(
    "get",
    "TARGET PROMPT [ARGUMENTS…] | PROMPT [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset list app.py --prompts",
    "mcp-toolset get app.py review language=French",
)
@json_option
@reach_options
@click.pass_context
def get_command(
    ctx: click.Context,
    words: Sequence[str],
    as_json: bool,
    reach: Reach,
) -> None:
    """Get PROMPT of TARGET and print its messages. ARGUMENTS are key=value words."""
    target, command, (prompt, *typed) = target_and_words(ctx, words, "PROMPT", more=True)
    place = parse_target(target, command)

    from mcp_toolset.cli.arguments import typed_arguments

    arguments = typed_arguments(typed, sys.stdin).as_texts()

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run_on

    reach.log()
    told = written(target, command)
    with answering() as output:
        found = run_on(place, reach.mounting(), lambda server: _get(server, prompt, arguments, told))
        _show(found, output, as_json)


async def _get(
    server: ToolsetServer, prompt: str, arguments: Mapping[str, str], target: str
) -> Mapping[str, Any]:
    from mcp_toolset.cli.display.output import TerminalContext
    from mcp_toolset.cli.offered import listed, unknown
    from mcp_toolset.context.offer_kinds import PROMPTS

    try:
        return await server.offering.prompt(prompt, arguments, TerminalContext())
    except LookupError as fault:
        names = [str(entry["name"]) for entry in await listed(server, PROMPTS)]
        if prompt in names:
            raise CallError(f"{prompt}: {fault}; check its arguments") from None
        raise unknown("prompt", prompt, names, target) from None


def _show(result: Mapping[str, Any], output: Output, as_json: bool) -> None:
    from mcp_toolset.cli.display.output import block_text

    if as_json:
        output.json(dict(result))
        return
    messages: Sequence[Mapping[str, Any]] = result.get("messages", ())
    for message in messages:
        text = block_text(message.get("content") or {})
        output.text(text if len(messages) == 1 else f"{message.get('role')}: {text}")
