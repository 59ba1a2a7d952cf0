"""`mcp-toolset pin`: compare the tools of mounted servers with their pins, and accept changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.options import (
    Reach,
    json_option,
    lock_option,
    reach_options,
    target_and_words,
    target_command,
)
from mcp_toolset.cli.target import ConfigFile, parse_target
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.catalog.pins.lockfile import LockEntry
    from mcp_toolset.cli.display.output import Output
    from mcp_toolset.cli.mount import MountOptions
    from mcp_toolset.cli.pinning import Comparison
    from mcp_toolset.cli.target import Target

__all__ = ["pin_command"]


@target_command(
    "pin",
    "TARGET [NAMES]… | [NAMES]… -- COMMAND…",
    "mcp-toolset pin mcp.json",
    "mcp-toolset pin mcp.json --check",
    "mcp-toolset pin mcp.json --accept git/commit",
)
@click.option("--accept", is_flag=True, help="Accept all changes, or those of NAMES.")
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if a definition differs from its pin."
)
@lock_option
@json_option
@reach_options
@click.pass_context
def pin_command(
    ctx: click.Context,
    words: Sequence[str],
    accept: bool,
    check: bool,
    lock: Path | None,
    as_json: bool,
    reach: Reach,
) -> int:
    """Pin the definitions of mounted tools, show later changes, and accept them.

    The first run writes the lock file. From then on, a tool that becomes more powerful, or whose text gains
    a risky part, is held until you accept it here. NAMES are tools, servers or server/tool, with * as a
    wildcard.
    """
    target, command, names = target_and_words(ctx, words, more=True)
    if check and accept:
        raise click.UsageError("--check changes nothing; leave out --accept", ctx)
    if names and not accept:
        raise click.UsageError(f"{names[0]!r} is a name to accept; add --accept", ctx)
    place = parse_target(target, command)

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run

    reach.log()
    options, wish = (
        reach.mounting(lock=lock),
        _Wish(accept, check, tuple(names)),
    )
    with answering(as_json=as_json) as output:
        return run(lambda: _pin(place, options, wish, output))


@dataclass(frozen=True, slots=True)
class _Wish:
    """Whether to show, check or accept the differences."""

    accept: bool
    check: bool
    names: tuple[str, ...]


async def _pin(place: Target, options: MountOptions, wish: _Wish, output: Output) -> int:
    from mcp_toolset.cli.mount import opened
    from mcp_toolset.cli.pinning import compare, orphans

    async with opened(place, options) as server:
        comparisons = compare(server)
        left = orphans(comparisons, _configured(place)) if isinstance(place, ConfigFile) else []
        existed = all(comparison.entry.file.exists for comparison in comparisons)
        written = not wish.check and (wish.accept or not existed)
        report = _report(comparisons, left)
        if written:
            report["accepted"] = _accept(comparisons, left, wish.names)
    if output.as_json:
        output.json(report)
    else:
        _show(report, output, existed=existed, written=written)
    differs = not existed or any(entry["changes"] or not entry["reached"] for entry in report["servers"])
    return int(wish.check and (differs or bool(left) or any(not one["pinned"] for one in report["servers"])))


def _configured(place: ConfigFile) -> list[str]:
    """Every server that the file names, disabled servers included."""
    from mcp_toolset.config import load_config

    return [server.name for server in load_config(place.path).servers]


def _accept(comparisons: Sequence[Comparison], left: Sequence[LockEntry], names: Sequence[str]) -> list[str]:
    from mcp_toolset.cli.pinning import accept, chosen

    accepted: list[str] = []
    for file in dict.fromkeys(comparison.entry.file for comparison in comparisons):
        own = [comparison for comparison in comparisons if comparison.entry.file is file]
        changes = chosen(own, names)
        reached = [one.entry.server for one in own if one.listed is not None and not names]
        gone = [entry.server for entry in left if entry.file is file and not names]
        accept(file, changes, pin=reached, forget=gone)
        accepted += [f"{change.server}/{change.tool}" for change in changes]
    return accepted


def _report(comparisons: Sequence[Comparison], left: Sequence[LockEntry]) -> dict[str, Any]:
    from mcp_toolset.cli.display.changes import change_json

    servers = [
        {
            "name": one.name,
            "lock": str(one.entry.file.path),
            "reached": one.listed is not None,
            "pinned": one.pinned is not None,
            "tools": len(one.listed or ()),
            "changes": [change_json(name, *pair) for name, pair in one.changed().items()],
        }
        for one in comparisons
    ]
    return {"servers": servers, "not_configured": [entry.server for entry in left]}


def _show(report: dict[str, Any], output: Output, *, existed: bool, written: bool) -> None:
    from mcp_toolset.cli.display.changes import change_lines

    for server in report["servers"]:
        output.text(f"{server['name']}: {_state(server)}")
        for change in server["changes"] if server["pinned"] else ():
            for line in change_lines(change):
                output.text(f"  {line}")
    for name in report["not_configured"]:
        output.text(f"{name}: pinned, but no longer configured")
    if written:
        lock = report["servers"][0]["lock"]
        output.text(f"{'accepted' if existed else 'pinned'} in {lock}: {_count(report['accepted'])}")
    elif any(server["changes"] for server in report["servers"]) or report["not_configured"]:
        output.text("accept all of it with --accept, or name what to accept")


def _count(accepted: Sequence[str]) -> str:
    return counted(len(accepted), "definition")


def _state(server: dict[str, Any]) -> str:
    if not server["reached"]:
        return "not reached, its pins stay"
    if not server["pinned"]:
        return f"not pinned yet, {counted(server['tools'], 'tool')}"
    changes = len(server["changes"])
    return f"{changes} of its tools differ" if changes else f"as pinned, {counted(server['tools'], 'tool')}"
