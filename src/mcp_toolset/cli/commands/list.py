"""`mcp-toolset list`: what a model would see of a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset.cli.options import (
    TargetCommand,
    deferred_option,
    json_option,
    target_and_words,
    timeout_option,
    verbose_option,
)
from mcp_toolset.cli.target import parse_target

if TYPE_CHECKING:
    from mcp_toolset.bridge.server import ToolsetServer
    from mcp_toolset.cli.output import Output
    from mcp_toolset.tools.source import SourceStatus

__all__ = ["list_command"]


@click.command("list", cls=TargetCommand, options_metavar="[OPTIONS]")
@click.argument("words", nargs=-1, metavar="TARGET | -- COMMAND…")
@json_option
@deferred_option
@timeout_option
@verbose_option
@click.pass_context
def list_command(
    ctx: click.Context,
    words: Sequence[str],
    as_json: bool,
    deferred: bool | None,
    timeout: float | None,
    verbose: int,
) -> None:
    """List the tools that a model would see, what is behind search, and how the servers are doing."""
    target, command, _ = target_and_words(ctx, words)
    place = parse_target(target, command)

    from mcp_toolset.cli.mount import MountOptions, opened
    from mcp_toolset.cli.output import answering, log_to_stderr
    from mcp_toolset.cli.running import run

    log_to_stderr(verbose, quiet=True)

    async def show(output: Output) -> None:
        async with opened(place, MountOptions(deferred, timeout)) as server:
            if as_json:
                output.json(_as_json(server))
            else:
                _show(server, output)

    with answering() as output:
        run(lambda: show(output))


def _as_json(server: ToolsetServer) -> dict[str, Any]:
    deferred = _deferred(server)
    return {
        "tools": server.tools(),
        "deferred": {"total": sum(deferred.values()), "servers": deferred},
        "servers": {name: _status(status) for name, status in server.statuses().items()},
    }


def _status(status: SourceStatus) -> dict[str, Any]:
    from mcp_toolset.cli.changes import status_lists

    return {
        "state": status.state,
        "reason": status.reason,
        "retry_in": status.retry_in,
        "tools": status.tools,
        **status_lists(status),
    }


def _deferred(server: ToolsetServer) -> Mapping[str, int]:
    return Counter(binding.source for binding in server.bindings() if binding.deferred)


def _show(server: ToolsetServer, output: Output) -> None:
    from mcp_toolset.catalog.entry import CatalogEntry

    listed = [binding for binding in server.bindings() if not binding.deferred]
    rows = [
        (tool.name, tool.source, CatalogEntry(tool.definition, tool.name).description_line) for tool in listed
    ]
    if rows:
        output.table(("tool", "server", "description"), rows)
    output.text(_summary(len(rows), _deferred(server)))
    if statuses := server.statuses():
        output.text("")
        output.table(
            ("server", "state", "tools", "note"), [_row(name, status) for name, status in statuses.items()]
        )


def _summary(listed: int, deferred: Mapping[str, int]) -> str:
    tools = f"{listed} tool{'' if listed == 1 else 's'}"
    if not deferred:
        return tools
    counts = ", ".join(f"{source or 'local'}: {count}" for source, count in deferred.items())
    return f"{tools}, and {sum(deferred.values())} more behind search ({counts})"


def _row(name: str, status: SourceStatus) -> tuple[str, str, str, str]:
    aside = f"{len(status.set_aside)} set aside; see inspect" if status.set_aside else ""
    return name, status.state, str(status.tools), status.reason or aside
