"""`SqliteJournal`: a journal in one file, for the processes of one machine.

A row is synced to disk before its call runs. Its outcome is written before the caller gets it, and not
synced: after a power cut the last outcomes are unknown, and no call runs twice. Whether another process lives
is told by its lock; see `OwnerLocks`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import anyio.to_thread

from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.concurrency.sqlite_thread import SqliteStore
from mcp_toolset.extensions.journal.journal_store import (
    DAY,
    LIFETIME,
    Found,
    Intent,
    Outcome,
    Record,
    standing_of,
)
from mcp_toolset.extensions.journal.place import journal_path

PRUNE_EVERY: Final = 1000
"""Calls after which old rows are removed."""

_TABLES: Final = """CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, who TEXT NOT NULL, session TEXT NOT NULL,
    server TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, source TEXT NOT NULL,
    nonce TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
    began REAL NOT NULL, ended REAL NOT NULL DEFAULT 0, outcome BLOB, note TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS calls_by_time ON calls (began)"""
_FILE: Final = SqliteFile(b"MTsj", (_TABLES,))
_ADD: Final = """INSERT OR IGNORE INTO calls
    (id, fingerprint, who, session, server, tool, arguments, source, nonce, attempt, state, owner, began)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 'begun', ?, ?)"""
_AGAIN: Final = """UPDATE calls
    SET attempt = attempt + 1, state = 'begun', nonce = ?, owner = ?, began = ?, ended = 0
    WHERE id = ? AND attempt = ?"""
_END: Final = """UPDATE calls SET state = ?, ended = ?, outcome = ?, note = ?
    WHERE id = ? AND attempt = ?"""
_SETTLE: Final = "UPDATE calls SET state = 'done', ended = ?, outcome = NULL, note = ? WHERE id = ?"


class SqliteJournal(SqliteStore):
    """A journal in one file, readable by its owner only."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lifetime: float = LIFETIME,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use a file, which is made when the journal is entered.

        Args:
            path: The file; the user's own unless given.
            lifetime: Seconds for which a call is remembered.
            now: Seconds since the epoch.
        """
        super().__init__(
            journal_path() if path is None else Path(path), _FILE, "the journal of calls", owned=True
        )
        self._lifetime = lifetime
        self._now = now
        self._begun = 0
        self._file = 0

    async def __aenter__(self) -> Self:
        """See `SqliteStore`; what killed processes have left goes."""
        is_first = self._users == 0
        await super().__aenter__()
        if is_first:
            await anyio.to_thread.run_sync(self.locks.sweep)
        return self

    async def begin(self, intent: Intent) -> Found | None:
        """See `JournalStore`."""
        return await self.do(lambda file: self._added(file, intent))

    async def find(self, id: str) -> Found | None:
        """See `JournalStore`."""
        return await self.do(lambda file: self._live(self._of(file, id)), synced=False)

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """See `JournalStore`."""
        row = (intent.id, attempt)
        return await self.do(
            lambda file: file.execute(_AGAIN, (intent.nonce, self.locks.own, self._now(), *row)).rowcount > 0
        )

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        """See `JournalStore`."""
        row = (outcome.state, self._now(), outcome.sealed, outcome.note, id, attempt)
        await self.do(lambda file: file.execute(_END, row).rowcount, synced=False)

    async def release(self, id: str, attempt: int) -> None:
        """See `JournalStore`."""
        forget = "DELETE FROM calls WHERE id = ? AND attempt = ?"
        await self.do(lambda file: file.execute(forget, (id, attempt)).rowcount, synced=False)

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """See `JournalStore`."""
        query = """SELECT * FROM calls WHERE substr(id, 1, ?) = ? AND began > ? AND state <> ?
            ORDER BY began DESC LIMIT ?"""
        row = (len(prefix), prefix, self._now() - self._lifetime, "done" if undone else "", limit)
        return await self.do(lambda file: [self._found(one) for one in file.execute(query, row)])

    async def settle(self, id: str, note: str | None) -> bool:
        """See `JournalStore`."""
        return await self.do(lambda file: self._settled(file, id, note))

    def _added(self, file: sqlite3.Connection, intent: Intent) -> Found | None:
        if os.stat(self.path).st_ino != self._file:
            raise FileNotFoundError(f"{self.path} was replaced; it is opened again")
        now = self._now()
        self._begun += 1
        if self._begun % PRUNE_EVERY == 1:
            file.execute("DELETE FROM calls WHERE began < ?", (now - max(self._lifetime, DAY),))
        row = (*intent, self.locks.own, now)
        if file.execute(_ADD, row).rowcount:
            return None
        if (found := self._live(self._of(file, intent.id))) is None:
            file.execute("DELETE FROM calls WHERE id = ?", (intent.id,))
            file.execute(_ADD, row)
        return found

    def _live(self, found: Found | None) -> Found | None:
        """A record that is not too old."""
        if found is not None and found.standing != "running":
            return found if found.record.began >= self._now() - self._lifetime else None
        return found

    def _settled(self, file: sqlite3.Connection, id: str, note: str | None) -> bool:
        found = self._of(file, id)
        if found is None or found.standing == "running":
            return False
        if note is None:
            file.execute("DELETE FROM calls WHERE id = ?", (id,))
        else:
            file.execute(_SETTLE, (self._now(), note, id))
        return True

    def _of(self, file: sqlite3.Connection, id: str) -> Found | None:
        row = file.execute("SELECT * FROM calls WHERE id = ?", (id,)).fetchone()
        return None if row is None else self._found(row)

    def _found(self, row: tuple[Any, ...]) -> Found:
        record = Record(Intent(*row[:9]), *row[9:])
        lives = record.state == "begun" and self.locks.lives(record.owner)
        return Found(record, standing_of(record.state, lives))

    def _opened(self) -> sqlite3.Connection:
        file = super()._opened()
        self._file = os.stat(self.path).st_ino
        return file
