"""`SqliteGrantStore`: grants in an SQLite file, shared by processes and kept over restarts.

The gate reads synchronously on a connection of its own: in WAL mode no writer delays a reader. Writing waits
for the disk and for other processes, and belongs in a worker thread (`waits`).
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from mcp_toolset._records import replace
from mcp_toolset.catalog.grants.store import (
    MAX_OF_OWNER,
    MAX_RECORDS,
    GrantFilter,
    GrantRecord,
    ToolGrant,
    Wire,
)
from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.errors import GrantStoreError

MAX_KEPT: Final = 100_000
"""The number of grants that a file keeps; the oldest are removed."""

WRITE_PATIENCE: Final = 5.0
"""Seconds that a write waits for other processes."""

READ_PATIENCE: Final = 0.1
"""Seconds that a read waits; in WAL mode only the repair after a crash makes it wait."""

_TABLES: Final = """CREATE TABLE grants (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE, handle TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL,
    tool TEXT NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL, expires REAL NOT NULL,
    endpoint TEXT NOT NULL, listed TEXT NOT NULL, issued REAL NOT NULL, uses INTEGER,
    revoked INTEGER NOT NULL
);
CREATE INDEX grants_of_owner ON grants (owner, name, number);
CREATE TABLE records (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, replay TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL,
    expires REAL NOT NULL, key TEXT, reason TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_replay ON records (owner, replay, id) WHERE replay != '';
CREATE TABLE definitions (digest TEXT PRIMARY KEY, wire TEXT NOT NULL) WITHOUT ROWID"""
FILE: Final = SqliteFile(b"MTsG", (_TABLES,))

_MEND: Final = "; move it away to begin with an empty one, or name another file"
_FIELDS: Final = (
    "key, handle, name, source, tool, digest, owner, expires, endpoint, listed, issued, uses, revoked"
)
_log = logging.getLogger("mcp_toolset.grants")

_T = TypeVar("_T")
_Row = tuple[Any, ...]


class SqliteGrantStore:
    """Grants in an SQLite file; several processes may share it. Close it, or use it in a `with` block."""

    waits = True

    def __init__(
        self, path: str | os.PathLike[str], *, limit: int = MAX_KEPT, of_owner: int = MAX_OF_OWNER
    ) -> None:
        """Open the file, or create it, readable by its owner only.

        Args:
            path: The file; its directory must exist.
            limit: The number of grants to keep.
            of_owner: The number of grants to keep for one owner.

        Raises:
            GrantStoreError: it cannot be opened, is damaged, of another program, or of a later
                version of this one. The file is unchanged.
        """
        self.path = Path(path)
        self._limit = limit
        self._of_owner = of_owner
        self._writing, self._reading = RLock(), RLock()
        try:
            _require_whole(self.path)
            self._writer = FILE.open(self.path, patience=WRITE_PATIENCE)
            try:
                # A grant that was taken back or used up must stay so, even after a loss of power.
                self._writer.execute("PRAGMA synchronous = FULL")
                self._reader = FILE.open(self.path, patience=WRITE_PATIENCE)
                self._reader.execute(f"PRAGMA busy_timeout = {READ_PATIENCE * 1000:.0f}")
            except BaseException:
                self._writer.close()
                raise
        except (sqlite3.Error, OSError) as fault:
            raise GrantStoreError(
                f"{self.path}: it cannot be used for grants, and was not changed: {fault}{_MEND}"
            ) from fault
        self._reader.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        """Close the file; later calls raise `GrantStoreError`."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def add(self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]) -> list[GrantRecord]:
        """Store outcomes in one transaction."""
        rows = [(digest, json.dumps(wire)) for digest, wire in definitions.items()]

        def write(file: sqlite3.Connection) -> list[GrantRecord]:
            file.executemany("INSERT OR IGNORE INTO definitions VALUES (?, ?)", rows)
            stands = [_added(file, record) for record in records]
            self._shrink(file, {record.owner for record in records if record.owner})
            return stands

        return self._write(write)

    def get(self, key: str) -> ToolGrant | None:
        """The grant of a handle's hash."""
        return self._grant("WHERE key = ?", key)

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a name."""
        return self._grant("WHERE owner = ? AND name = ? ORDER BY number DESC LIMIT 1", owner, name)

    def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant for each name, in the order of the first."""
        newest = "SELECT max(number) FROM grants WHERE owner = ? GROUP BY name ORDER BY min(number)"
        found = self._read(f"SELECT number, {_FIELDS} FROM grants WHERE number IN ({newest})", owner)
        order = [row[0] for row in self._read(newest, owner)]
        grants = {row[0]: _grant_of(row[1:]) for row in found}
        return [grants[number] for number in order if number in grants]

    def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        found = self._records("WHERE owner = ? AND replay = ? AND id = ?", owner, replay, id)
        return found[0] if found else None

    def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        return self._records("") if owner is None else self._records("WHERE owner = ?", owner)

    def definition(self, digest: str) -> Wire | None:
        """A definition that was granted."""
        rows = self._read("SELECT wire FROM definitions WHERE digest = ?", digest)
        return json.loads(rows[0][0]) if rows else None

    def take(self, key: str) -> bool:
        """Take one use of a grant, in one statement: a use is never taken twice."""
        spent = "UPDATE grants SET uses = uses - 1 WHERE key = ? AND (uses IS NULL OR uses > 0)"
        return self._write(lambda file: file.execute(spent, (key,)).rowcount) == 1

    def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        self._write(lambda file: file.execute("UPDATE grants SET uses = uses + 1 WHERE key = ?", (key,)))

    def revoke(self, which: GrantFilter) -> int:
        """Revoke grants."""
        given = [(field, value) for field, value in which.items() if value is not None]
        terms = " AND ".join(["revoked = 0", *(f"{field} = ?" for field, _ in given)])
        values = [value for _, value in given]
        return self._write(
            lambda file: file.execute(f"UPDATE grants SET revoked = 1 WHERE {terms}", values).rowcount
        )

    def purge(self, before: float) -> int:
        """Remove what had expired by then."""

        def write(file: sqlite3.Connection) -> int:
            gone = file.execute("DELETE FROM grants WHERE expires <= ?", (before,)).rowcount
            file.execute("DELETE FROM records WHERE expires <= ?", (before,))
            file.execute("DELETE FROM definitions WHERE digest NOT IN (SELECT digest FROM grants)")
            return gone

        return self._write(write)

    def _grant(self, where: str, *values: str) -> ToolGrant | None:
        rows = self._read(f"SELECT {_FIELDS} FROM grants {where}", *values)
        return _grant_of(rows[0]) if rows else None

    def _records(self, where: str, *values: str) -> list[GrantRecord]:
        with self._reading:
            found = self._read(
                f"SELECT owner, replay, id, at, expires, reason, key FROM records {where} ORDER BY number",
                *values,
            )
            return [_record_of(row, self._of_record(row)) for row in found]

    def _of_record(self, row: _Row) -> ToolGrant | None:
        """The present state of a record's grant; a grant that was removed is not valid."""
        if row[6] is None:
            return None
        return self.get(row[6]) or ToolGrant("", row[2], "", "", "", row[0], row[4], revoked=True, key=row[6])

    def _read(self, statement: str, *values: str) -> list[_Row]:
        try:
            with self._reading:
                return self._reader.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    def _write(self, write: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with self._writing:
                with transaction(self._writer):
                    return write(self._writer)
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    def _unusable(self, fault: Exception) -> GrantStoreError:
        _log.error("%s: %s", self.path, fault)
        return GrantStoreError("the grants cannot be looked up or kept now; try again later")

    def _shrink(self, file: sqlite3.Connection, owners: Iterable[str]) -> None:
        for owner in owners:
            file.execute(
                "DELETE FROM grants WHERE owner = ?1 AND number <= coalesce((SELECT number FROM grants"
                " WHERE owner = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2), 0)",
                (owner, self._of_owner),
            )
        for table, limit in (("grants", self._limit), ("records", MAX_RECORDS)):
            file.execute(
                f"DELETE FROM {table} WHERE number <= coalesce((SELECT number FROM {table}"
                " ORDER BY number DESC LIMIT 1 OFFSET ?), 0)",
                (limit,),
            )


def _require_whole(path: Path) -> None:
    """Refuse a damaged file before it is opened to be written."""
    path.parent.stat()  # a folder that is not there is not made
    if path.exists() and path.stat().st_size:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            if (damage := file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"it is damaged ({damage})")


def _added(file: sqlite3.Connection, record: GrantRecord) -> GrantRecord:
    grant = record.grant
    key = None if grant is None else grant.key
    row = (record.owner, record.replay, record.id, record.at, record.expires, key, record.reason)
    added = file.execute(
        "INSERT OR IGNORE INTO records (owner, replay, id, at, expires, key, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        row,
    ).rowcount
    if not added:
        return _standing(file, record)
    if grant is not None:
        file.execute(f"INSERT INTO grants ({_FIELDS}) VALUES ({', '.join('?' * 13)})", _row_of(grant))
    return record


def _standing(file: sqlite3.Connection, record: GrantRecord) -> GrantRecord:
    at, expires, key, reason = file.execute(
        "SELECT at, expires, key, reason FROM records WHERE owner = ? AND replay = ? AND id = ?",
        (record.owner, record.replay, record.id),
    ).fetchone()
    found = file.execute(f"SELECT {_FIELDS} FROM grants WHERE key = ?", (key,)).fetchone()
    grant = None if found is None else _grant_of(found)
    if key is not None and grant is None:
        reason = "what was granted then is no longer kept"
    return replace(record, at=at, expires=expires, grant=grant, reason=reason)


def _record_of(row: _Row, grant: ToolGrant | None) -> GrantRecord:
    owner, replay, id, at, expires, reason, _ = row
    return GrantRecord(owner, replay, id, at, expires, grant, reason)


def _row_of(grant: ToolGrant) -> _Row:
    handle = grant.handle if grant.owner else ""
    return (
        grant.key,
        handle,
        grant.name,
        grant.source,
        grant.tool,
        grant.digest,
        grant.owner,
        grant.expires,
        grant.endpoint,
        grant.listed,
        grant.issued,
        grant.uses,
        int(grant.revoked),
    )


def _grant_of(row: _Row) -> ToolGrant:
    return ToolGrant(*row[1:12], revoked=bool(row[12]), key=row[0])
