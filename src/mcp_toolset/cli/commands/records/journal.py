"""`mcp-toolset journal`: the calls that are recorded; say what became of one whose outcome is not known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from uuid import UUID

import click
from click.core import ParameterSource

from mcp_toolset.cli.options import examples, json_option
from mcp_toolset.errors import StoreError

if TYPE_CHECKING:
    from mcp_toolset.calls.journal.journal import Found
    from mcp_toolset.cli.display.output import Output

__all__ = ["journal_command"]

Action = Literal["list", "show", "settle"]

_MANY = 100
"""How many calls are listed unless the option says otherwise."""


@click.command(
    "journal",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "mcp-toolset journal",
        "mcp-toolset journal list --unknown",
        "mcp-toolset journal show 3f2a9c10b7d1",
        "mcp-toolset journal settle 3f2a9c10b7d1 --done 'invoice 17'",
        "mcp-toolset journal settle 3f2a9c10b7d1 --never",
    ),
)
@click.argument("action", type=click.Choice(get_args(Action)), default="list", metavar="[list|show|settle]")
@click.argument("id", default="", metavar="[ID]")
@click.option("--unknown", is_flag=True, help="List only calls whose outcome is not known.")
@click.option("--done", metavar="TEXT", help="Settle: the call has run; TEXT is its result.")
@click.option("--never", is_flag=True, help="Settle: the call has not run, and may run again.")
@click.option(
    "--limit", type=click.IntRange(1), default=_MANY, help=f"List so many calls; {_MANY} if left out."
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the journal, if it is not in the user's folder.",
)
@click.option(
    "--store",
    metavar="URL",
    envvar="MCP_TOOLSET_SHARED",
    help="The store of the journal, if it is no file: redis://host:6379 or postgresql://host/db.",
)
@json_option
@click.pass_context
def journal_command(ctx: click.Context, action: Action, id: str, as_json: bool, **said: Any) -> int:
    """Show the calls that servers record, and settle calls whose outcome is unknown.

    A call that is settled with --done does not run again with its key; a call that is settled with --never
    may run again.
    """
    wanted = _Wanted(**said)
    if bool(id) is (action == "list"):
        raise click.UsageError("show and settle take the ID of a call; list takes none", ctx)
    if wanted.settles is not (action == "settle") or (wanted.never and wanted.done is not None):
        raise click.UsageError("settle takes either --done TEXT or --never; list and show take neither", ctx)

    if wanted.file and wanted.store and ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--file and --store name two journals; give one of them", ctx)

    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import run

    place = _place(wanted)
    with answering(as_json=as_json) as output:
        found: Sequence[Found] = () if place is None else run(lambda: _found(place, action, id, wanted))
        if action == "list":
            _list(found, output)
        elif not found:
            told = "it was settled, has expired, or is in another journal"
            raise StoreError(f"{_named(wanted)}: no call {id} is recorded; {told}")
        elif action == "show" or as_json:
            _show(found[0], output)
        else:
            text = "has never happened, and may be made again" if wanted.never else f"done: {wanted.done}"
            fields = _fields(found[0])
            output.say(f"{fields['id']} {fields['tool']}: {text}")
    return 0


class _Wanted(NamedTuple):
    """What the options say."""

    unknown: bool
    done: str | None
    never: bool
    limit: int
    file: Path | None
    store: str | None

    @property
    def settles(self) -> bool:
        return self.never or self.done is not None


def _place(wanted: _Wanted) -> Path | str | None:
    """Where the journal is; `None` if the user has none."""
    if wanted.file is None and wanted.store:
        return wanted.store
    from mcp_toolset.calls.journal.place import journal_path

    path = wanted.file or journal_path()
    if path.exists():
        return path
    if wanted.file is None:
        return None
    told = "a server with a journal makes it; name the file that the server uses"
    raise StoreError(f"{path} does not exist: {told}")


def _named(wanted: _Wanted) -> str:
    """What errors call the journal: the address of a store may have a password."""
    place = _place(wanted)
    return "the store" if isinstance(place, str) else "the journal" if place is None else str(place)


async def _found(place: Path | str, action: Action, id: str, wanted: _Wanted) -> Sequence[Found]:
    """The records, as they are after what was asked for."""
    from mcp_toolset.shared.journals import journal_at

    async with journal_at(place) as journal:
        found = await journal.records(prefix=id.lower(), limit=wanted.limit, undone=wanted.unknown)
        if action == "list":
            return [one for one in found if not wanted.unknown or one.standing in ("unknown", "asked")]
        if len(found) > 1:
            raise StoreError(
                f"{_named(wanted)}: {len(found)} calls have ids that begin with {id}; write more of the id"
            )
        if not found or action == "show":
            return found
        whole = found[0].record.intent.id
        if not await journal.settle(whole, wanted.done):
            raise StoreError(
                f"{_named(wanted)}: call {id} runs; it can be settled when its server has ended it"
            )
        return await journal.records(prefix=whole) or found


def _list(found: Sequence[Found], output: Output) -> None:
    if output.as_json:
        output.json([_fields(one) for one in found])
        return
    if not found:
        output.text("no such call is recorded")
        return
    from mcp_toolset.cli.display.tables import Column

    columns = [Column("id"), Column("state", state=True), Column("began"), Column("caller"), Column("tool")]
    rows = [[*map(str, list(_fields(one).values())[:5])] for one in found]
    arguments = [one.record.intent.arguments for one in found]
    output.table(
        [*columns, Column("arguments", prose=True)],
        [[*row, text] for row, text in zip(rows, arguments, strict=True)],
    )


def _show(found: Found, output: Output) -> None:
    fields = _fields(found)
    if output.as_json:
        output.json(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        if value not in ("", None):
            output.text(f"{name:<{width}}  {value}")


def _fields(found: Found) -> dict[str, Any]:
    from mcp_toolset.calls.journal.answers import SHOWN, moment

    record, intent = found.record, found.record.intent
    return {
        "id": intent.id[:SHOWN],
        "state": found.standing,
        "began": moment(record.began),
        "caller": intent.who or "-",
        "tool": f"{intent.server}/{intent.tool}" if intent.server else intent.tool,
        "arguments": intent.arguments,
        "ended": moment(record.ended) if record.ended else "",
        "attempts": record.attempt,
        "key": intent.source,
        "sent": str(UUID(intent.id[:32])),
        "note": record.note,
    }
