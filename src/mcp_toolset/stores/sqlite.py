"""`FileStore`: entries in an SQLite file, for processes of one machine; `DirectFile`: one that never waits.

`FileStore` writes in a thread, in which steps at one time share a transaction. `DirectFile` reads where it is
asked, on a connection of its own that no writer delays (WAL); its writes wait for the disk, and belong in a
worker thread. Whether another process lives is told by its lock; see `OwnerLocks`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Final, Self, TypeVar

import anyio.to_thread

from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.concurrency.sqlite_thread import SqliteStore
from mcp_toolset.errors import StoreError
from mcp_toolset.stores.sql import FORGET, FORGET_EVERY, TABLES, changing, naming, reading, trimming
from mcp_toolset.stores.store import ABSENT, Entry, Place, Put, Store

FILE: Final = SqliteFile(b"MTse", (TABLES,))

WRITE_PATIENCE: Final = 5.0
"""Seconds that a write of `DirectFile` waits for other processes."""

READ_PATIENCE: Final = 0.1
"""Seconds that a read of `DirectFile` waits; in WAL mode only the repair after a crash makes it wait."""


_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.stores")


class FileStore(SqliteStore, Store):
    """Entries in one file, readable by its user only.

    Attributes:
        path: The file.
    """

    def __init__(
        self, path: Path, name: str, *, owned: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        """Use a file, which is made when the store is entered.

        Args:
            path: The file.
            name: What errors call it.
            owned: Whether it has to be told which of its users live.
            now: Seconds since the epoch.
        """
        SqliteStore.__init__(self, path, FILE, name, owned=owned)
        self._now = now
        self._file = self._steps = 0

    async def __aenter__(self) -> Self:
        """Open the file, unless it is open; what killed processes have left goes."""
        is_first = self._users == 0
        await SqliteStore.__aenter__(self)
        if is_first and self._is_owned:
            self.own = self.locks.own
            await anyio.to_thread.run_sync(self.locks.sweep)
        return self

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        now = self._now()
        return await self.do(lambda file: _entries(file, places, now), synced=False)

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        return await self.do(lambda file: self._written(file, puts, synced), synced=synced)

    async def names(self, shelf: str) -> Sequence[str]:
        now = self._now()
        return await self.do(lambda file: _names(file, shelf, now), synced=False)

    async def lives(self, owner: str) -> bool:
        return await self.do(lambda file: self.locks.lives(owner), synced=False)

    def _written(
        self, file: sqlite3.Connection, puts: Sequence[Put], synced: bool
    ) -> Sequence[Entry | None] | None:
        if synced and os.stat(self.path).st_ino != self._file:
            raise FileNotFoundError(f"{self.path} was replaced; it is opened again")
        now = self._now()
        self._steps += 1
        if self._steps % FORGET_EVERY == 1:
            file.execute(FORGET, (now,))
        return _written(file, puts, now)

    def _opened(self) -> sqlite3.Connection:
        file = super()._opened()
        self._file = os.stat(self.path).st_ino
        return file


class DirectFile(Store):
    """Entries in one file, which is open from its making on. No step waits for a loop."""

    def __init__(self, path: Path, name: str, now: Callable[[], float] = time.time) -> None:
        """Open the file, or create it, readable by its user only; its folder must exist.

        Raises:
            StoreError: it cannot be opened, is damaged, of another program, or of a later version of this
                one. The file is unchanged.
        """
        self.path = path
        self.name = name
        self._now = now
        self._steps = 0
        self._writing, self._reading = RLock(), RLock()
        try:
            _require_whole(path)
            self._writer = FILE.open(path, patience=WRITE_PATIENCE)
            try:
                # What was taken or removed must stay so, even after a loss of power.
                self._writer.execute("PRAGMA synchronous = FULL")
                self._reader = FILE.open(path)
                self._reader.execute(f"PRAGMA busy_timeout = {READ_PATIENCE * 1000:.0f}")
            except BaseException:
                self._writer.close()
                raise
        except (sqlite3.Error, OSError) as fault:
            what, mend = (
                name.removeprefix("the "),
                "move it away to begin with an empty one, or name another file",
            )
            raise StoreError(
                f"{path}: it cannot be used for {what}, and was not changed: {fault}; {mend}"
            ) from fault
        self._reader.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        """Close the file; later steps raise `StoreError`."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        return self._read(lambda file: _entries(file, places, self._now()))

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        now = self._now()
        try:
            with self._writing, transaction(self._writer):
                self._steps += 1
                if self._steps % FORGET_EVERY == 1:
                    self._writer.execute(FORGET, (now,))
                return _written(self._writer, puts, now)
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    async def names(self, shelf: str) -> Sequence[str]:
        return self._read(lambda file: _names(file, shelf, self._now()))

    async def lives(self, owner: str) -> bool:
        return False

    def _read(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with self._reading:
                return read(self._reader)
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    def _unusable(self, fault: Exception) -> StoreError:
        _log.error("%s: %s", self.path, fault)
        return StoreError(f"{self.name} cannot be looked up or kept now; try again later")


def _entries(file: sqlite3.Connection, places: Sequence[Place], now: float) -> list[Entry | None]:
    rows = (file.execute(*reading(place, now)[:2]).fetchone() for place in places)
    return [None if row is None else Entry(*row) for row in rows]


def _names(file: sqlite3.Connection, shelf: str, now: float) -> list[str]:
    return [name for (name,) in file.execute(*naming(shelf, now)[:2])]


def _written(file: sqlite3.Connection, puts: Sequence[Put], now: float) -> list[Entry | None] | None:
    """Make changes in the transaction that holds the file's lock."""
    entries = partial(_entries, file, [(put.shelf, put.name) for put in puts], now)
    if len(puts) > 1:
        standing = entries()
        tags = [ABSENT if one is None else one.tag for one in standing]
        if any(put.known not in (None, tag) for put, tag in zip(puts, tags, strict=True)):
            return standing
    for put in puts:
        text, values, must = changing(put, now)
        if not file.execute(text, values).rowcount and must:
            return entries()
        if put.most is not None:
            file.execute(*trimming(put)[:2])
    return None


def _require_whole(path: Path) -> None:
    """Refuse a damaged file before it is opened to be written."""
    path.parent.stat()  # a folder that is not there is not made
    if path.exists() and path.stat().st_size:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            if (damage := file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"it is damaged ({damage})")
