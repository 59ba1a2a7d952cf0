"""The SQLite file of `SqliteGrantStore`: its owner, version and tables."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from mcp_toolset.errors import GrantStoreError

APPLICATION: Final = 0x4D547347
"""SQLite's `application_id` of a file of ours: the letters `MTsG`."""

SCHEMA: Final = 1
"""SQLite's `user_version`: the version of the tables below."""

_TABLES: Final = f"""
CREATE TABLE grants (
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
CREATE TABLE definitions (digest TEXT PRIMARY KEY, wire TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
"""
_MAGIC: Final = b"SQLite format 3\x00"

_PATIENCE: Final = 5.0
"""Seconds that other processes may take to begin with the file."""

_STEP: Final = 0.01

_T = TypeVar("_T")

MEND: Final = "; move it away to begin with an empty one, or name another file"
"""What ends each message about a file."""


def require_ours(path: Path) -> None:
    """Look at a file before SQLite does, which would write a log beside it."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise GrantStoreError(f"{path}: it is not a grant store, and was not changed{MEND}")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        # One look at it: another process may be making the tables just now.
        file.execute("BEGIN")
        _require_version(file, path)
        damage = file.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise GrantStoreError(f"{path}: it is damaged ({damage}), and was not changed{MEND}")


def _require_version(file: sqlite3.Connection, path: Path) -> None:
    kind, version = (file.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
    if (kind, version) == (0, 0) and not file.execute("SELECT 1 FROM sqlite_master").fetchone():
        return
    if kind != APPLICATION:
        raise GrantStoreError(f"{path}: it is a database of another program, and was not changed{MEND}")
    if version != SCHEMA:
        raise GrantStoreError(
            f"{path}: its tables have version {version} and this program knows version {SCHEMA}; it is left "
            f"as it is{MEND}"
        )


_MARKS: Final = ("application_id", "user_version")


def prepare(file: sqlite3.Connection, path: Path) -> None:
    """Make the tables, unless another process was quicker."""
    log_ahead(file)
    # A grant that was taken back or used up must stay so, even after a loss of power.
    file.execute("PRAGMA synchronous = FULL")

    def make(file: sqlite3.Connection) -> None:
        _require_version(file, path)
        if file.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _TABLES.split(";\n"):
                file.execute(statement)

    in_transaction(file, make)


def log_ahead(file: sqlite3.Connection) -> None:
    """Have the file written by a log (WAL), which readers do not wait for.

    SQLite waits for other processes by itself, but not here, where several begin with one file at once.
    """
    waiting, until = threading.Event(), time.monotonic() + _PATIENCE
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            waiting.wait(_STEP)
        else:
            return


def in_transaction(file: sqlite3.Connection, write: Callable[[sqlite3.Connection], _T]) -> _T:
    """Write and commit, or leave everything as it was."""
    file.execute("BEGIN IMMEDIATE")
    try:
        done = write(file)
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    return done
