"""`mcp-toolset stats`: the calls, errors, latencies and tokens of what was served, by server and client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset._index import part
from mcp_toolset.cli.options import complete_word, examples, json_option, refuse_given, view_options
from mcp_toolset.tools.screen import BYTES_PER_TOKEN, counted

if TYPE_CHECKING:
    from mcp_toolset.cli.output import Output
    from mcp_toolset.extensions.statistics.advice import Advice
    from mcp_toolset.extensions.statistics.store import Row, Total

__all__ = ["stats_command"]

_METHOD: Final = f"tokens are estimated: bytes of JSON / {BYTES_PER_TOKEN}"
_LOCAL: Final = "(own tools)"
_SEARCH: Final = "(search tools)"


def _day(value: str) -> str:
    """A day: `2026-11-22`, or `7d` for as many days with today."""
    try:
        if ago := re.fullmatch(r"(\d{1,5})d", value):
            return str(date.today() - timedelta(days=max(0, int(ago[1]) - 1)))
        return str(date.fromisoformat(value))
    except ValueError:
        mend = "write 2026-11-22, or 7d for the last seven days"
        raise click.BadParameter(f"{value!r} is no day; {mend}") from None


@click.command(
    "stats",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "mcp-toolset stats",
        "mcp-toolset stats mcp.json --since 7d",
        "mcp-toolset stats mcp.json --advice",
        "mcp-toolset stats --json",
        "mcp-toolset stats --forget",
    ),
)
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), required=False, shell_complete=complete_word
)
@click.option(
    "--since",
    type=_day,
    metavar="DAY",
    help="Count from this day on: 2026-11-22, or 7d ago; by default all days.",
)
@click.option(
    "--advice", "advises", is_flag=True, help="Show what nobody used, its cost, and how to remove it."
)
@click.option("--forget", is_flag=True, help="Delete the counts, those of FILE or all.")
@view_options
@json_option
@click.pass_context
def stats_command(
    ctx: click.Context,
    file: Path | None,
    since: str | None,
    advises: bool,
    forget: bool,
    views: Mapping[str, str],
    as_json: bool,
) -> int:
    """Show the calls, errors, latencies and tokens of your servers, by server and client.

    It shows sums over every `mcp-toolset serve` of this user in the last 90 days. Arguments, texts and
    names of callers are not stored.
    """
    if forget and advises:
        raise click.UsageError("--forget removes what --advice is made of; leave one of them out", ctx)
    if advises:
        refuse_given(ctx, views, "has no effect on --advice, which is about a whole FILE; leave it out")
    if forget and since:
        raise click.UsageError("--forget removes all days; leave out --since", ctx)

    from mcp_toolset.cli.output import answering
    from mcp_toolset.errors import StoreError, TargetError
    from mcp_toolset.extensions.statistics.counts import VARIABLE, statistics_path
    from mcp_toolset.extensions.statistics.store import StatisticsStore

    path = statistics_path()
    if path is None:
        raise StoreError(f"{VARIABLE} turns statistics off; unset it, or name a file with it")
    store = StatisticsStore(path)
    served = _served(store.served(), file, *views.values()) if file is not None or views else None
    if forget:
        store.forget(served)
    rows = store.rows(since or "", served)
    if file is not None and not rows and not forget and not file.exists():
        raise TargetError(f"{file}: no such file, and nothing was counted for it; check the path")
    with answering(as_json=as_json) as output:
        if advises:
            _advise(rows, output, since)
        elif as_json:
            output.json(_report(rows))
        elif forget:
            what = " of ".join((*views.values(), *([] if file is None else [str(file)])))
            output.say(f"forgotten: {what or 'everything that was counted'}")
        else:
            _show(rows, output, file, since)
    return 0


def _served(known: Iterable[str], file: Path | None, view: str = "") -> list[str]:
    """The names that a file and its views were served by, or those of a view alone."""
    from mcp_toolset.extensions.statistics.store import is_of

    of_file = [one for one in known if file is None or is_of(one, str(file.absolute()))]
    return [one for one in of_file if not view or one.endswith(f"#{view}")]


def _server_of(row: Row) -> str:
    from mcp_toolset.extensions.statistics.counts import SEARCH

    return _SEARCH if row.server == SEARCH else row.server or _LOCAL


def _client_of(row: Row) -> str:
    return row.client or "(unknown)"


def _report(rows: Sequence[Row]) -> dict[str, Any]:
    from mcp_toolset.extensions.statistics.store import summarized

    return {
        "since": rows[0].day if rows else None,
        "served": sorted({row.served for row in rows}),
        "estimate": _METHOD,
        "total": _plain(*summarized(rows, lambda row: "total")) if rows else None,
        "servers": [_plain(one) for one in _servers(rows)],
        "clients": [_plain(one) for one in _clients(rows)],
    }


def _servers(rows: Sequence[Row]) -> list[Total]:
    from mcp_toolset.extensions.statistics.counts import SESSIONS
    from mcp_toolset.extensions.statistics.store import summarized

    # Sessions are those of a client, and no server's.
    return summarized((row for row in rows if row.what != SESSIONS), _server_of)


def _clients(rows: Sequence[Row]) -> list[Total]:
    from mcp_toolset.extensions.statistics.counts import CALLED
    from mcp_toolset.extensions.statistics.store import summarized

    # The calls of a tool are summed for all clients together.
    return summarized((row for row in rows if not row.what.startswith(CALLED)), _client_of)


def _advise(rows: Sequence[Row], output: Output, since: str | None) -> None:
    from mcp_toolset.extensions.statistics.advice import FEW, Period, advice, configurations
    from mcp_toolset.extensions.statistics.store import is_of

    today = date.today()
    served = {one: [row for row in rows if is_of(row.served, one)] for one in configurations(rows)}
    found = {one: advice(one, own, today) for one, own in served.items()}
    if output.as_json:
        periods = {one: Period.of(own, today) for one, own in served.items()}
        told = [
            {"file": one, "since": each.since, "days": each.days, "sessions": each.sessions}
            for one, each in periods.items()
        ]
        every = [each.as_json() for ones in found.values() for each in ones]
        output.json({"estimate": _METHOD, "served": told, "advice": every})
        return
    if not served:
        _show([], output, None, since)
    for one, ones in found.items():
        period = Period.of(served[one], today)
        seen = f"{counted(period.sessions, 'session')} in {counted(period.days, 'day')}"
        output.say(f"{one}: {seen}{'' if ones else ', and everything was used'}")
        for each in ones:
            output.text("")
            _show_advice(each, output)
        if ones and period.sessions < FEW:
            output.say(f"\nfewer than {FEW} sessions: what was not used yet may still be needed")
    if served:
        output.text("")
        output.say(f"{_METHOD}; a tool behind search costs nothing in lists")


def _show_advice(one: Advice, output: Output) -> None:
    if one.tools:
        what = f"nobody called {len(one.tools)} of {counted(one.of or 0, 'tool')}"
    else:
        what = "nobody used it" + ("" if one.of is None else f" ({counted(one.of, 'tool')})")
    output.say(f"{one.server}: {what}; {one.tokens_per_day:,} tokens a day")
    if one.tools:
        output.say(f"  {', '.join(one.tools)}")
    output.say(f"  {one.command}")
    if one.instead:
        output.say(f"  or put it behind search: {one.instead} in the entry of {one.server}")


def _plain(one: Total) -> dict[str, Any]:
    return {
        "name": one.name,
        "sessions": one.sessions,
        "calls": one.calls,
        "errors": one.errors,
        "refused": one.refused,
        "p50_seconds": one.p50 and round(one.p50, 6),
        "p95_seconds": one.p95 and round(one.p95, 6),
        "tokens_listed": one.tokens_listed,
        "tokens_shown": one.tokens_shown,
        "tokens_saved": one.tokens_saved,
        "faults": one.faults,
    }


def _show(rows: Sequence[Row], output: Output, file: Path | None, since: str | None) -> None:
    from mcp_toolset.extensions.statistics.store import summarized

    if not rows:
        span = f" since {since}" if since else ""
        start = f"start `mcp-toolset serve {file or 'mcp.json'}`, or let a client do so"
        output.say(f"no calls recorded yet{span}: {start}")
        return
    (total,) = summarized(rows, lambda row: "total")
    output.say(
        f"since {rows[0].day}: {counted(total.calls, 'call')}, {counted(total.errors, 'error')}, "
        f"{total.refused} refused, in {counted(total.sessions, 'session')}; {_saved(total)}"
    )
    output.text("")
    _table(output, "server", _servers(rows))
    output.text("")
    clients = _clients(rows)
    _table(output, "client", clients)
    if (fit := part("fit")) is not None:
        output.text("")
        for one in clients:
            if one.sessions and one.tokens_listed:
                output.say(fit.of_use(one.name, one.sessions, one.tokens_listed))
    if total.faults:
        output.text("")
        for kind, number in total.faults.items():
            output.say(f"{number} × {kind}")
    output.text("")
    output.say(f"{_METHOD}; listed is what all tools would cost, shown what lists and searches did cost")


def _saved(total: Total) -> str:
    saved = total.tokens_saved
    more = "more" if saved < 0 else f"saved ({100 * saved // max(1, total.tokens_listed)} %)"
    return (
        f"all tools would cost {total.tokens_listed:,} tokens, {total.tokens_shown:,} were shown: "
        f"{abs(saved):,} {more}"
    )


def _table(output: Output, head: str, totals: Sequence[Total]) -> None:
    from mcp_toolset.cli.output import Column

    names = [head, "calls", "errors", "refused", "p50", "p95", "listed", "shown", "saved"]
    if head == "client":
        names.insert(1, "sessions")
    output.table([Column(name) for name in names], [_row(one, head) for one in totals])


def _row(one: Total, head: str) -> list[str]:
    numbers = [f"{one.calls:,}", f"{one.errors:,}", f"{one.refused:,}", _time(one.p50), _time(one.p95)]
    tokens = [f"{each:,}" for each in (one.tokens_listed, one.tokens_shown, one.tokens_saved)]
    return [one.name, *([f"{one.sessions:,}"] if head == "client" else []), *numbers, *tokens]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.{0 if seconds >= 0.01 else 1}f} ms"
