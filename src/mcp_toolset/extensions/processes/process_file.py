"""`ProcessFile`: the records of processes in one SQLite file, which the programs of one machine share.

Each program holds a lock that the system ends with it (`OwnerLocks`). So a process whose program was killed
is seen as lost at once, without a clock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

import anyio
from pydantic_core import from_json

from mcp_toolset._records import replace
from mcp_toolset.concurrency.asked_store import answer_of
from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.concurrency.sqlite_thread import SqliteStore
from mcp_toolset.tools.core.processes import Process, ProcessEvent, ProcessState
from mcp_toolset.tools.core.result import encodable

STEP_TIMEOUT: Final = 10.0
"""Seconds that one step may take."""

PRUNE_EVERY: Final = 3_600.0
"""Seconds after which the next process that starts removes those whose lifetime is over."""

EVENTS_KEPT: Final = 1_000
"""Events that are kept of one process; the oldest are dropped."""

NOTE_LENGTH: Final = 4_000
"""Characters that are kept of the error of a process."""

NAME: Final = "the record of processes"
"""What errors call the file; they may reach a model."""

_MOST_COUNTED: Final = 2**62
_TABLES: Final = """CREATE TABLE IF NOT EXISTS processes (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL, name TEXT NOT NULL, tool TEXT NOT NULL,
    state TEXT NOT NULL, host TEXT NOT NULL, began REAL NOT NULL, ended REAL NOT NULL DEFAULT 0,
    stopping INTEGER NOT NULL DEFAULT 0, result BLOB, note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS events (
    process TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (process, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS processes_by_owner ON processes (owner, began)"""
_FILE: Final = SqliteFile(b"MTsp", (_TABLES,))
_ADD: Final = """INSERT INTO processes (id, owner, session, name, tool, state, host, began)
    VALUES (?, ?, ?, ?, ?, 'running', ?, ?)"""
_END: Final = (
    "UPDATE processes SET state = ?, ended = ?, result = ?, note = ? WHERE id = ? AND state = 'running'"
)
_STOP: Final = "UPDATE processes SET stopping = 1 WHERE id = ? AND state = 'running'"
_SHOWN: Final = "SELECT id, name, state, tool, began, ended, note, host, result FROM processes"
_NOTE: Final = """INSERT INTO events SELECT ?, 1 + COALESCE(MAX(number), 0), ?, ?, ? FROM events
    WHERE process = ?"""

_T = TypeVar("_T")


class Owner(NamedTuple):
    """Whose processes they are.

    Attributes:
        key: The caller; all callers without a login have one key.
        session: The session that such a caller sees in lists; `None` for all of the key.
        own: The session that a new process is recorded with.
    """

    key: str
    session: str | None = None
    own: str = ""


class Kept(NamedTuple):
    """A record.

    Attributes:
        process: The handle.
        result: The result as JSON.
        is_here: Whether this program has started the process.
    """

    process: Process
    result: bytes | None
    is_here: bool


class ProcessFile(SqliteStore):
    """The file; each method is one step in it."""

    def __init__(self, path: Path, lifetime: float, now: Callable[[], float] = time.time) -> None:
        super().__init__(path, _FILE, NAME, owned=True)
        self.now = now
        self._lifetime = lifetime
        self._pruned = 0.0

    async def __aenter__(self) -> Self:
        """See `SqliteStore`; what is too old goes."""
        await super().__aenter__()
        try:
            await self._do("be opened", self._prune)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def add(self, process: Process, owner: Owner) -> None:
        """Record a process that is about to run."""
        row = (process.id, owner.key, owner.own, encodable(process.name), process.tool)

        def write(file: sqlite3.Connection) -> None:
            if self.now() - self._pruned >= min(self._lifetime, PRUNE_EVERY):
                self._prune(file)
            file.execute(_ADD, (*row, self.locks.own, process.began))

        await self._do("record the process, which was not started", write)

    async def end(self, id: str, state: ProcessState, result: bytes | None, note: str) -> None:
        row = (state, self.now(), result, encodable(note[:NOTE_LENGTH]), id)
        await self._do("record the end of a process", lambda file: file.execute(_END, row))

    async def found(self, id: str, owner: Owner) -> Kept | None:
        def read(file: sqlite3.Connection) -> Kept | None:
            rows = file.execute(f"{_SHOWN} WHERE id = ? AND owner = ?", (encodable(id), owner.key))
            return next((self._kept(row) for row in rows), None)

        return await self._do("be read", read)

    async def listed(self, owner: Owner, limit: int) -> Sequence[Kept]:
        """The newest records of this owner."""
        where, values = "owner = ?", [owner.key]
        if owner.session is not None:
            where, values = f"{where} AND session = ?", [*values, owner.session]
        asked = f"{_SHOWN} WHERE {where} ORDER BY began DESC, rowid DESC LIMIT ?"

        def read(file: sqlite3.Connection) -> list[Kept]:
            return [self._kept(row) for row in file.execute(asked, (*values, _counted(limit))).fetchall()]

        return await self._do("be read", read)

    async def stop(self, id: str) -> None:
        """Ask the program that runs a process to end it."""
        await self._do("be told to stop a process", lambda file: file.execute(_STOP, (id,)))

    async def stopping(self) -> Sequence[str]:
        """The processes of this program that someone has asked to end."""
        asked = "SELECT id FROM processes WHERE state = 'running' AND stopping AND host = ?"
        return await self._do(
            "be read", lambda file: [row[0] for row in file.execute(asked, (self.locks.own,)).fetchall()]
        )

    async def note(self, id: str, kind: str, data: bytes) -> None:
        """Append an event, and drop the oldest if there are too many."""

        def write(file: sqlite3.Connection) -> None:
            file.execute(_NOTE, (id, encodable(kind), data, self.now(), id))
            newest = file.execute("SELECT MAX(number) FROM events WHERE process = ?", (id,)).fetchone()[0]
            file.execute("DELETE FROM events WHERE process = ? AND number <= ?", (id, newest - EVENTS_KEPT))

        await self._do("record an event", write, synced=False)

    async def events(self, id: str, after: int) -> Sequence[ProcessEvent]:
        """The events with numbers above `after`."""
        asked = "SELECT number, kind, data, at FROM events WHERE process = ? AND number > ? ORDER BY number"

        def read(file: sqlite3.Connection) -> list[ProcessEvent]:
            rows = file.execute(asked, (id, _counted(after))).fetchall()
            return [ProcessEvent(number, kind, from_json(data), at) for number, kind, data, at in rows]

        return await self._do("be read", read)

    def _kept(self, row: tuple[Any, ...]) -> Kept:
        *shown, host, result = row
        process = Process(*shown)
        if process.state == "running" and not self.locks.lives(host):
            note = "the program that ran it ended in the middle"
            process = replace(process, state="lost", note=note)
        return Kept(process, cast("bytes | None", result), host == self.locks.own)

    def _prune(self, file: sqlite3.Connection) -> None:
        self._pruned = self.now()
        self.locks.sweep()
        old = self.now() - self._lifetime
        for id, state, host in file.execute(
            "SELECT id, state, host FROM processes WHERE MAX(began, ended) < ?", (old,)
        ).fetchall():
            if state != "running" or not self.locks.lives(host):
                file.execute("DELETE FROM events WHERE process = ?", (id,))
                file.execute("DELETE FROM processes WHERE id = ?", (id,))

    async def _do(self, to: str, work: Callable[[sqlite3.Connection], _T], *, synced: bool = True) -> _T:
        """One step, which is not given up half done."""
        with anyio.CancelScope(shield=True):
            return await answer_of(NAME, self.step(work, synced=synced), within=STEP_TIMEOUT, to=to)
        raise AssertionError("nothing cancels this scope")


def _counted(number: int) -> int:
    """A number that a caller gives, as SQLite can hold it; it would take a negative limit for none."""
    return max(0, min(number, _MOST_COUNTED))
