"""`claim`: mark a database in SQLite as one of ours, and refuse that of another program."""

from __future__ import annotations

import sqlite3

__all__ = ["claim", "kind_of"]


def kind_of(file: sqlite3.Connection) -> int:
    """SQLite's `application_id`: which program a database is of; 0 if none has said so."""
    return file.execute("PRAGMA application_id").fetchone()[0]


def claim(file: sqlite3.Connection, application: int, table: str, mend: str = "") -> None:
    """Make the table in an empty database, in a transaction of the caller's."""
    kind = kind_of(file)
    if kind == application:
        return
    if kind or file.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError(f"it is a database of another program{mend}")
    file.execute(table)
    file.execute(f"PRAGMA application_id = {application}")
