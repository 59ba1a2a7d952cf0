"""Opening the file: look before touching, migrate by `user_version`, keep the indexes by triggers.

`notes` is the only table that tools write for a note; triggers derive `note_tags` and the full-text
index from it, so that no sequence of writes can leave them apart. A file is first looked at through
a read-only connection: one that is corrupt, foreign or of a newer version is left as it was.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic

from .errors import DatabaseUnusableError
from .query import contains_text

__all__ = ["APPLICATION_ID", "BUSY_SECONDS", "MIGRATIONS", "open_database"]

APPLICATION_ID = 0x4D4E4F54
"""Marks the file as ours ("MNOT" in SQLite's header)."""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock."""

_NOTES = (
    """CREATE TABLE notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
        revision INTEGER NOT NULL DEFAULT 1,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    )""",
    "CREATE INDEX notes_by_recency ON notes (updated_at DESC, id DESC)",
    """CREATE TABLE note_tags (
        tag TEXT NOT NULL,
        note_id INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
        PRIMARY KEY (tag, note_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX note_tags_by_note ON note_tags (note_id)",
    """CREATE VIRTUAL TABLE notes_fts USING fts5 (
        title, body, tags, content = 'notes', content_rowid = 'id',
        tokenize = 'porter unicode61 remove_diacritics 2', prefix = '3 4'
    )""",
    """CREATE TRIGGER note_added AFTER INSERT ON notes BEGIN
        INSERT INTO notes_fts (rowid, title, body, tags) VALUES (new.id, new.title, new.body, new.tags);
        INSERT INTO note_tags (tag, note_id) SELECT value, new.id FROM json_each(new.tags);
    END""",
    """CREATE TRIGGER note_deleted AFTER DELETE ON notes BEGIN
        INSERT INTO notes_fts (notes_fts, rowid, title, body, tags)
            VALUES ('delete', old.id, old.title, old.body, old.tags);
    END""",
    """CREATE TRIGGER note_changed AFTER UPDATE OF title, body, tags ON notes BEGIN
        INSERT INTO notes_fts (notes_fts, rowid, title, body, tags)
            VALUES ('delete', old.id, old.title, old.body, old.tags);
        INSERT INTO notes_fts (rowid, title, body, tags) VALUES (new.id, new.title, new.body, new.tags);
        DELETE FROM note_tags WHERE note_id = old.id;
        INSERT INTO note_tags (tag, note_id) SELECT value, new.id FROM json_each(new.tags);
    END""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_LINKS = (
    """CREATE TABLE links (
        source INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
        target INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
        PRIMARY KEY (source, target),
        CHECK (source <> target)
    ) WITHOUT ROWID""",
    "CREATE INDEX links_by_target ON links (target)",
)

MIGRATIONS = (_NOTES, _LINKS)
"""Statements that lead from each `user_version` to the next."""


def open_database(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection to the file at `path`, made with its parents if absent, at the newest version.

    The connection may be used from any thread, by one at a time. Raises `DatabaseUnusableError`
    with the file as it was when it cannot be served.
    """
    try:
        if path.exists() and path.stat().st_size:
            _inspect(path, busy_seconds)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _connect(path, busy_seconds)
    except OSError as error:
        raise DatabaseUnusableError(f"{path}: {error.strerror or error}: choose another file.") from error
    except sqlite3.Error as error:
        mend = "restore it from a backup, or choose another file"
        raise DatabaseUnusableError(f"{path}: {error}: {mend}.") from error


def _inspect(path: Path, busy_seconds: float) -> None:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_seconds)
    try:
        version = _pragma(connection, "user_version")
        _refuse_foreign(path, connection)
        if version > len(MIGRATIONS):
            raise DatabaseUnusableError(
                f"{path}: made by a newer version of this server (its format is {version}, "
                f"this one reads up to {len(MIGRATIONS)}): upgrade the server, or choose another file."
            )
        _refuse_damaged(path, connection)
    finally:
        connection.close()


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    holds_tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
    if holds_tables and _pragma(connection, "application_id") != APPLICATION_ID:
        raise DatabaseUnusableError(f"{path}: a database of another program: choose another file.")


def _refuse_damaged(path: Path, connection: sqlite3.Connection) -> None:
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name IN ('notes', 'note_tags', 'links') AND type = 'table'"
    )
    for (table,) in tables.fetchall():
        finding = connection.execute(f"PRAGMA quick_check({table})").fetchone()[0]
        if finding != "ok":
            detail = " ".join(str(finding).split())
            raise DatabaseUnusableError(f"{path}: damaged ({detail}): restore it from a backup.")


def _connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("contains_text", 2, contains_text, deterministic=True)
        _use_wal(connection, busy_seconds)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    # SQLite answers a race for this switch with "locked" at once; a transaction does wait its turn.
    deadline = monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return


def _migrate(connection: sqlite3.Connection) -> None:
    if _pragma(connection, "user_version") >= len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have migrated meanwhile.
        version = _pragma(connection, "user_version")
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
