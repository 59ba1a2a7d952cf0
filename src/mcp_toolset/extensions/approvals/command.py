"""`mcp-toolset approvals`: the calls that wait for an approval; grant or refuse one, while servers run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mcp_toolset.cli.options import Listing, examples, json_option

if TYPE_CHECKING:
    from mcp_toolset.cli.output import Output
    from mcp_toolset.extensions.approvals.extension import Approval, Approvals

__all__ = ["approvals_command"]


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    file = click.option(
        "--file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file of the approvals, if it is not in the user's folder.",
    )
    return file(json_option(function))


@click.group(
    "approvals",
    cls=Listing,
    epilog=examples(
        "mcp-toolset approvals",
        "mcp-toolset approvals grant 3f2a9c10",
        "mcp-toolset approvals refuse 3f2a9c10",
    ),
)
def approvals_command() -> None:
    """Show the calls that wait for an approval, and grant or refuse them.

    A granted call may be made once, by the same caller and with the same arguments, within an hour.
    """


@approvals_command.command("list")
@_options
def list_command(file: Path | None, as_json: bool) -> None:
    """Show the calls that wait for an approval; this is also done if no action is named."""
    from mcp_toolset.cli.output import answering

    with answering(as_json=as_json) as output:
        _show(_approvals(file).waiting(), output)


@approvals_command.command("grant", epilog=examples("mcp-toolset approvals grant 3f2a9c10"))
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@_options
def grant_command(ids: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Grant calls: each may be made once, within an hour, by the same caller with the same arguments."""
    _decide("granted", ids, file, as_json)


@approvals_command.command("refuse", epilog=examples("mcp-toolset approvals refuse 3f2a9c10"))
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@_options
def refuse_command(ids: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Refuse calls: the caller is told, and none of them is made."""
    _decide("refused", ids, file, as_json)


def _decide(
    state: Literal["granted", "refused"], ids: Sequence[str], file: Path | None, as_json: bool
) -> None:
    from mcp_toolset.cli.callers import system_user
    from mcp_toolset.cli.output import answering

    with answering(as_json=as_json) as output:
        approvals, decider = _approvals(file), system_user()
        decided = [approvals.decide(id, state, decider=decider) for id in ids]
        if output.as_json:
            _show(decided, output)
        for one in () if output.as_json else decided:
            output.text(f"{state} {one.id}: {_tool(one)} {one.arguments}")


def _approvals(file: Path | None) -> Approvals:
    from mcp_toolset.errors import StoreError
    from mcp_toolset.extensions.approvals.extension import VARIABLE, Approvals, approvals_path

    path = file or approvals_path()
    if path is None:
        raise StoreError(f"{VARIABLE} turns approvals off; unset it, or name a file with --file")
    if file is not None and not file.exists():
        hint = "the first call that waits for an approval makes it; name the file that the server uses"
        raise StoreError(f"{file} does not exist: {hint}")
    return Approvals(path)


def _tool(approval: Approval) -> str:
    return f"{approval.server}/{approval.tool}" if approval.server else approval.tool


def _show(approvals: list[Approval], output: Output) -> None:
    if output.as_json:
        output.json([asdict(one) for one in approvals])
        return
    if not approvals:
        output.text("no call waits for an approval")
        return
    from mcp_toolset.cli.output import Column

    names = ["id", "state", "minutes left", "caller", "tool"]
    columns = [*map(Column, names), Column("arguments", prose=True)]
    output.table(columns, [_row(approval, time.time()) for approval in approvals])


def _row(one: Approval, now: float) -> list[str]:
    left = f"{max(0.0, one.expires - now) / 60:.0f}"
    return [one.id, one.state, left, one.who or "-", _tool(one), one.arguments]
