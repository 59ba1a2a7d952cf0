"""`mcp-toolset call`: call one tool once. Deferred tools need no grant: its user is the host."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
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
from mcp_toolset.errors import CallError, InvalidArgumentsError

if TYPE_CHECKING:
    from mcp_toolset.cli.arguments import TypedArguments
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.core.result import ToolResult
    from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["call_command"]


@target_command(
    "call",
    "TARGET TOOL [ARGUMENTS…] | TOOL [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset call app.py add a=1 b=2",
    "mcp-toolset call app.py sort names=b names=a",
    "mcp-toolset call add a=1 b=2 -- python app.py",
)
@click.option(
    "--key", metavar="KEY", help="What a repeat of this call has too, for servers that record calls."
)
@json_option
@reach_options
@click.pass_context
def call_command(
    ctx: click.Context,
    words: Sequence[str],
    key: str | None,
    as_json: bool,
    reach: Reach,
) -> int:
    """Call TOOL of TARGET and print its result.

    ARGUMENTS are key=value words, one JSON object, or - for JSON on stdin. To give a list, repeat its key.
    The exit code is 1 if the tool reports an error.
    """
    target, command, (tool, *typed) = target_and_words(ctx, words, "TOOL", more=True)
    place = parse_target(target, command)

    from mcp_toolset.cli.arguments import typed_arguments

    arguments = typed_arguments(typed, sys.stdin)

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run_on

    reach.log()

    async def call(server: ToolsetServer) -> ToolResult:
        binding = await _tool(server, tool, written(target, command))
        return await _call(server, binding, _fitting(binding, arguments), key, reach.timeout)

    with answering() as output:
        result = run_on(place, reach.mounting(), call)
        _show(result, tool, output, as_json)
    return 1 if result.is_error else 0


async def _tool(server: ToolsetServer, name: str, target: str) -> ToolBinding:
    from mcp_toolset.cli.offered import listed
    from mcp_toolset.context.offer_kinds import PROMPTS
    from mcp_toolset.tools.binding.binding import loaded

    tools = {binding.name: binding for binding in server.bindings()}
    if name in tools:
        # The schemas of a tool that is listed by a manifest are fetched first.
        return await loaded(tools[name].contracted)
    if "://" in name:
        raise CallError(
            f"{name}: no tool, but the address of a resource; use mcp-toolset read {target} {name}"
        )
    close = difflib.get_close_matches(name, tools, n=1)
    mend = f"did you mean {close[0]}?" if close else f"see mcp-toolset list {target}"
    if any(entry["name"] == name for entry in await listed(server, PROMPTS)):
        mend = f"it is a prompt: use mcp-toolset get {target} {name}"
    raise CallError(f"{name}: no such tool in {target}; {mend}")


def _fitting(binding: ToolBinding, typed: TypedArguments) -> dict[str, Any]:
    from mcp_toolset.catalog.search.entry import CatalogEntry

    arguments = typed.read(binding.definition.input_schema)
    problems = binding.arguments.problems(arguments)
    if problems:
        signature = CatalogEntry(binding.definition, binding.name).signature
        raise InvalidArgumentsError(f"{binding.name}: {'; '.join(problems)}; it takes {signature}")
    return arguments


async def _call(
    server: ToolsetServer,
    binding: ToolBinding,
    arguments: dict[str, Any],
    key: str | None,
    seconds: float | None,
) -> ToolResult:
    import anyio

    from mcp_toolset.cli.display.output import working

    try:
        with anyio.fail_after(seconds), working(f"calling {binding.name} …"):
            return await _sent(server, binding, arguments, key)
    except TimeoutError:
        raise CallError(
            f"{binding.name}: no result within {seconds:g} s; allow more with --timeout"
        ) from None


async def _sent(
    server: ToolsetServer, binding: ToolBinding, arguments: dict[str, Any], key: str | None
) -> ToolResult:
    from mcp_toolset.cli.display.output import TerminalContext

    return await server.call_as_host(binding.name, arguments, context=TerminalContext(key))


def _show(result: ToolResult, tool: str, output: Output, as_json: bool) -> None:
    from mcp_toolset.cli.display.output import complain

    if as_json:
        output.json(dict(result.wire))
    elif result.is_error:
        text = _text(result) or "it failed and said nothing more"
        complain(text if tool in text else f"{tool}: {text}")
    else:
        output.text(_text(result))


def _text(result: ToolResult) -> str:
    from mcp_toolset.cli.display.output import block_text

    if not result.content:
        return result.text
    return "\n".join(map(block_text, result.content))
