"""`StatisticsStore`: the file with the sums of all servers of a user; and `summarized`, their totals.

There is a row for each day and sum. Each save is one transaction, so several processes share the file. Rows
are kept for 90 days.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.statistics import counts
from mcp_toolset.tools.screen import tokens_of

DAYS: Final = 90
"""Days for which rows are kept."""

MOST_ROWS: Final = 200_000
"""Rows of the file; beyond that the oldest days go."""

TIMEOUT: Final = 2.0
"""Seconds that a step waits for other processes."""

_TABLES: Final = """CREATE TABLE IF NOT EXISTS sums (
    day TEXT NOT NULL, served TEXT NOT NULL, server TEXT NOT NULL, client TEXT NOT NULL, what TEXT NOT NULL,
    number INTEGER NOT NULL, PRIMARY KEY (day, served, server, client, what)
) WITHOUT ROWID"""
_FILE: Final = SqliteFile(b"MTst", (_TABLES,))
_ADD: Final = """INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET number = min(number + excluded.number, 9000000000000000000)"""


class Row(NamedTuple):
    """One sum of one day."""

    day: str
    served: str
    server: str
    client: str
    what: str
    number: int


def is_of(served: str, file: str) -> bool:
    """True if a file was served, or a view of it, which is served as `FILE#NAME`."""
    return served == file or served.startswith(f"{file}#")


class StatisticsStore:
    """The sums in one file, readable by its owner only. Methods wait for the disk."""

    def __init__(self, path: Path) -> None:
        """Name the file; the first save creates it."""
        self.path = path

    def add(self, served: str, sums: counts.Sums, today: date | None = None) -> None:
        day = today or date.today()
        rows = [(str(day), served, *key, number) for key, number in sums.items()]
        with self._transaction() as file:
            file.executemany(_ADD, map(_storable, rows))
            file.execute("DELETE FROM sums WHERE day < ?", (str(day - timedelta(days=DAYS)),))
            while file.execute("SELECT count(*) FROM sums").fetchone()[0] > MOST_ROWS:
                file.execute("DELETE FROM sums WHERE day = (SELECT min(day) FROM sums)")

    def served(self) -> list[str]:
        """The names of all that was served."""
        if not self.path.exists():
            return []
        with self._transaction() as file:
            return [served for (served,) in file.execute("SELECT DISTINCT served FROM sums ORDER BY served")]

    def rows(self, since: str = "", served: Collection[str] | None = None) -> list[Row]:
        """The sums from a day on, of all that was served, or of some."""
        if not self.path.exists():
            return []
        with self._transaction() as file:
            rows = file.execute("SELECT * FROM sums WHERE day >= ? ORDER BY day", (since,))
            return [row for row in (Row(*each) for each in rows) if served is None or row.served in served]

    def forget(self, served: Collection[str] | None = None) -> None:
        """Remove all rows, or those of some that were served."""
        if self.path.exists():
            with self._transaction() as file:
                if served is None:
                    file.execute("DELETE FROM sums")
                else:
                    file.executemany("DELETE FROM sums WHERE served = ?", [(one,) for one in served])

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with closing(_FILE.open(self.path, timeout=TIMEOUT)) as file, transaction(file):
                yield file
        except (sqlite3.Error, OSError) as fault:
            mend = f"remove it, or name another with {counts.VARIABLE}"
            raise StoreError(f"{self.path}: statistics cannot be read or written: {fault}; {mend}") from fault


def _storable(row: Iterable[str | int]) -> list[str | int]:
    """A row as SQLite takes it: names of clients may have halves of characters."""
    return [each.encode(errors="replace").decode() if isinstance(each, str) else each for each in row]


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over the calls of one server or client.

    Attributes:
        name: The server or the client.
        sessions: The number of clients that have read the list of tools for the first time.
        calls: The calls.
        errors: Those that failed.
        refused: Those that did not run: unknown tool, wrong arguments, no grant, a rule.
        p50: Seconds within which half of the calls with a result or an error were answered; `None` without
            such calls.
        p95: The same for 95 of 100.
        tokens_listed: The tokens of all tools in these sessions.
        tokens_shown: The tokens of listed tools, and of the answers of searches.
        faults: The failed and refused calls by kind.
    """

    name: str
    sessions: int
    calls: int
    errors: int
    refused: int
    p50: float | None
    p95: float | None
    tokens_listed: int
    tokens_shown: int
    faults: dict[str, int]

    @property
    def tokens_saved(self) -> int:
        """Tokens that were not shown; below zero for the tools that search and grant."""
        return self.tokens_listed - self.tokens_shown


def summarized(rows: Iterable[Row], name_of: Callable[[Row], str]) -> list[Total]:
    """The totals by name, the one with most calls first."""
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        sums.setdefault(name_of(row), Counter())[row.what] += row.number
    totals = [_total(name, found) for name, found in sums.items()]
    return sorted(totals, key=lambda one: (-one.calls, -one.tokens_listed, one.name))


def _total(name: str, sums: Counter[str]) -> Total:
    buckets = {
        int(what.removeprefix(counts.BUCKET)): n for what, n in sums.items() if what.startswith(counts.BUCKET)
    }
    errors, refused = sums["error"], sums["refused"]
    faults = {what: n for what, n in sums.items() if what.startswith(("error: ", "refused: "))}
    known = sum(n for what, n in faults.items() if what.startswith("error: "))
    if errors > known:
        faults["error: the tool's own"] = errors - known
    return Total(
        name,
        sums[counts.SESSIONS],
        sum(sums[outcome] for outcome in counts.OUTCOMES),
        errors,
        refused,
        _quantile(buckets, 0.5),
        _quantile(buckets, 0.95),
        tokens_of(sums[counts.LISTED]),
        tokens_of(sums[counts.SHOWN]),
        dict(sorted(faults.items(), key=lambda each: -each[1])),
    )


def _quantile(buckets: dict[int, int], share: float) -> float | None:
    """The latency within which a share of the calls was answered."""
    left = share * sum(buckets.values())
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return counts.latency_of(bucket)
    return None
