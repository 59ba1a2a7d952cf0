"""`StatisticsStore`: the file with the sums of all servers of a user, a row for each day and sum.

Each save is one transaction, so several processes share the file. Rows are kept for 90 days.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.statistics.counts import Sums
from mcp_toolset.extensions.statistics.place import VARIABLE

DAYS: Final = 90
"""Days for which rows are kept."""

MOST_ROWS: Final = 200_000
"""Rows of the file; beyond that the oldest days go."""

PATIENCE: Final = 2.0
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


class StatisticsStore:
    """The sums in one file, readable by its owner only. Methods wait for the disk."""

    def __init__(self, path: Path) -> None:
        """Name the file; the first save creates it."""
        self.path = path

    def add(self, served: str, sums: Sums, today: date | None = None) -> None:
        day = today or date.today()
        rows = [(str(day), served, *key, number) for key, number in sums.items()]
        with self._transaction() as file:
            file.executemany(_ADD, map(_storable, rows))
            file.execute("DELETE FROM sums WHERE day < ?", (str(day - timedelta(days=DAYS)),))
            while file.execute("SELECT count(*) FROM sums").fetchone()[0] > MOST_ROWS:
                file.execute("DELETE FROM sums WHERE day = (SELECT min(day) FROM sums)")

    def rows(self, since: str = "", served: str | None = None) -> list[Row]:
        """The sums from a day on, of all that was served, or of one."""
        if not self.path.exists():
            return []
        query = "SELECT * FROM sums WHERE day >= ? AND (? IS NULL OR served = ?) ORDER BY day"
        with self._transaction() as file:
            return [Row(*row) for row in file.execute(query, (since, served, served))]

    def forget(self, served: str | None = None) -> None:
        """Remove all rows, or those of one that was served."""
        if self.path.exists():
            with self._transaction() as file:
                file.execute("DELETE FROM sums WHERE (? IS NULL OR served = ?)", (served, served))

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with closing(_FILE.open(self.path, patience=PATIENCE)) as file, transaction(file):
                yield file
        except (sqlite3.Error, OSError) as fault:
            mend = f"remove it, or name another with {VARIABLE}"
            raise StoreError(f"{self.path}: statistics cannot be read or written: {fault}; {mend}") from fault


def _storable(row: Iterable[str | int]) -> list[str | int]:
    """A row as SQLite takes it: names of clients may have halves of characters."""
    return [each.encode(errors="replace").decode() if isinstance(each, str) else each for each in row]
