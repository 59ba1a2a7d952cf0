"""`mcp-toolset journal`: the calls that are recorded; say what became of one whose outcome is not known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from click.core import ParameterSource

from mcp_toolset.cli.options import Listing, examples, json_option
from mcp_toolset.errors import StoreError

if TYPE_CHECKING:
    from mcp_toolset.cli.output import Output
    from mcp_toolset.extensions.journal.journal_store import Found, JournalStore

__all__ = ["journal_command"]

_SHOW = ("mcp-toolset journal show 3f2a9c10b7d1",)
_SETTLE = (
    "mcp-toolset journal settle 3f2a9c10b7d1 --done 'invoice 17'",
    "mcp-toolset journal settle 3f2a9c10b7d1 --never",
)
_MANY = 100
"""The number of calls that are listed unless the option says otherwise."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--file`, `--store` and `--json`; the command receives the first two as `place`."""

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
    @wraps(function)
    def told(ctx: click.Context, /, file: Path | None, store: str | None, **said: Any) -> None:
        if file and store and ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--file and --store name two journals; give one of them", ctx)
        if store and "://" not in store:
            raise click.UsageError("--store takes a URL, such as redis://host:6379", ctx)
        function(place=_place(file, store), **said)

    return told


@click.group(
    "journal",
    cls=Listing,
    epilog=examples("mcp-toolset journal", "mcp-toolset journal list --unknown", *_SHOW, *_SETTLE),
)
def journal_command() -> None:
    """Show the calls that servers record, and settle calls whose outcome is unknown."""


@journal_command.command("list", epilog=examples("mcp-toolset journal list --unknown"))
@click.option("--unknown", is_flag=True, help="List only calls whose outcome is not known.")
@click.option(
    "--limit", type=click.IntRange(1), default=_MANY, help=f"List so many calls; {_MANY} if left out."
)
@_options
def list_command(place: Path | str | None, as_json: bool, unknown: bool, limit: int) -> None:
    """List the recorded calls, the newest first. `mcp-toolset journal` alone does the same."""

    async def listed(journal: JournalStore) -> Sequence[Found]:
        records = await journal.records(limit=limit, undone=unknown)
        return [one for one in records if not unknown or one.standing in ("unknown", "asked")]

    with _answering(as_json) as output:
        _list(_read(place, listed), output)


@journal_command.command("show", epilog=examples(*_SHOW))
@click.argument("id")
@_options
def show_command(place: Path | str | None, as_json: bool, id: str) -> None:
    """Show one recorded call in full. ID is its id in the list, or the beginning of the id."""
    with _answering(as_json) as output:
        _show(_single(place, id, _read(place, partial(_found, id=id))), output)


@journal_command.command("settle", epilog=examples(*_SETTLE))
@click.argument("id")
@click.option("--done", metavar="TEXT", help="The call has run; TEXT is its result.")
@click.option("--never", is_flag=True, help="The call has not run, and may run again.")
@_options
@click.pass_context
def settle_command(
    ctx: click.Context, /, place: Path | str | None, as_json: bool, id: str, done: str | None, never: bool
) -> None:
    """Say what became of the call ID, whose outcome is unknown.

    A call that is settled with --done does not run again with its key; a call that is settled with --never
    may run again.
    """
    if never is (done is not None):
        raise click.UsageError("settle takes either --done TEXT or --never", ctx)

    async def settled(journal: JournalStore) -> Sequence[Found]:
        record = await _found(journal, id)
        if len(record) != 1:
            return record
        whole = record[0].record.intent.id
        if not await journal.settle(whole, done):
            raise StoreError(
                f"{_named(place)}: call {id} runs; it can be settled when its server has ended it"
            )
        return await journal.records(prefix=whole) or record

    with _answering(as_json) as output:
        one = _single(place, id, _read(place, settled))
        if as_json:
            _show(one, output)
        else:
            text = "has never happened, and may be made again" if never else f"done: {done}"
            fields = _fields(one)
            output.say(f"{fields['id']} {fields['tool']}: {text}")


def _answering(as_json: bool) -> AbstractContextManager[Output]:
    from mcp_toolset.cli.output import answering

    return answering(as_json=as_json)


def _place(file: Path | None, store: str | None) -> Path | str | None:
    """The place of the journal; `None` if the user has none."""
    if file is None and store:
        return store
    from mcp_toolset.extensions.journal.journal_store import journal_path

    path = file or journal_path()
    if path.exists():
        return path
    if file is None:
        return None
    hint = "a server with a journal makes it; name the file that the server uses"
    raise StoreError(f"{path} does not exist: {hint}")


def _named(place: Path | str | None) -> str:
    """The name of the journal in errors: the address of a store may have a password."""
    return "the store" if isinstance(place, str) else "the journal" if place is None else str(place)


def _read(
    place: Path | str | None, reading: Callable[[JournalStore], Awaitable[Sequence[Found]]]
) -> Sequence[Found]:
    """Read the journal; nothing is read if there is none."""
    if place is None:
        return ()
    from mcp_toolset.cli.mount import run
    from mcp_toolset.extensions.journal.journal_store import JournalStore

    async def read() -> Sequence[Found]:
        async with JournalStore(place) as journal:
            return await reading(journal)

    return run(read)


async def _found(journal: JournalStore, id: str) -> Sequence[Found]:
    return await journal.records(prefix=id.lower())


def _single(place: Path | str | None, id: str, found: Sequence[Found]) -> Found:
    match found:
        case [one]:
            return one
        case []:
            text = f"no call {id} is recorded; it was settled, has expired, or is in another journal"
        case _:
            text = f"{len(found)} calls have ids that begin with {id}; write more of the id"
    raise StoreError(f"{_named(place)}: {text}")


def _list(found: Sequence[Found], output: Output) -> None:
    if output.as_json:
        output.json([_fields(one) for one in found])
        return
    if not found:
        output.text("no such call is recorded")
        return
    from mcp_toolset.cli.output import Column

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
    from mcp_toolset.extensions.journal.journal_store import SHOWN, moment

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
