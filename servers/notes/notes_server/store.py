"""The notes themselves: every public method is one transaction, and safe to call from any thread.

One connection is shared under a lock, since tools run in worker threads that come and go; other
processes are kept apart by SQLite (WAL, busy timeout). A write happens wholly or not at all.
`revision` counts the changes of a note's own title, body and tags; a change that changes nothing,
and a link, do not count.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

from .database import BUSY_SECONDS, open_database
from .errors import DatabaseBusyError, InvalidNoteError, NoteNotFoundError, NotesError, RevisionConflictError
from .finding import list_page, search
from .models import (
    MAX_ID,
    DeletedNote,
    Note,
    NotePage,
    NoteRef,
    SearchResult,
    TagCount,
    TagList,
    clean_body,
    clean_tags,
    clean_title,
)
from .rows import NOTE_COLUMNS, stamp, to_note

__all__ = ["NoteStore"]

_NEIGHBOURS = """
    SELECT id FROM (SELECT id FROM notes WHERE id < :id ORDER BY id DESC LIMIT 2)
    UNION ALL SELECT id FROM (SELECT id FROM notes WHERE id > :id ORDER BY id LIMIT 2)
    ORDER BY id
"""
_LINKS = "SELECT id, title FROM links JOIN notes ON id = target WHERE source = ? ORDER BY id"
_BACKLINKS = "SELECT id, title FROM links JOIN notes ON id = source WHERE target = ? ORDER BY id"


def _now() -> datetime:
    return datetime.now(UTC)


class NoteStore:
    """Notes in the SQLite file at `path`, opened at first use or by `open`.

    Every method may raise `DatabaseBusyError` after `busy_seconds`. Those that take a note's id raise
    `NoteNotFoundError`; those that take `if_revision` raise `RevisionConflictError` when the note has
    moved on; text, tags, cursors and limits that cannot be used raise `InvalidNoteError`.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = _now, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.path = path
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()

    def open(self) -> Self:
        """Open the file now; raises `DatabaseUnusableError` if it cannot be served."""
        with self._held():
            self._opened()
        return self

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""
        with self._held():
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every write, in the thread that wrote; returns the way to end this."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    def add(self, title: str, body: str, tags: Iterable[str] = ()) -> Note:
        """A new note at revision 1."""
        row = (clean_title(title), clean_body(body), _as_json(clean_tags(tags)))
        with self._writing() as connection:
            moment = stamp(self._clock())
            added = connection.execute(
                "INSERT INTO notes (title, body, tags, created_at, updated_at) VALUES (?, ?, ?, ?, ?)",
                (*row, moment, moment),
            )
            return _note(connection, added.lastrowid or 0)

    def get(self, note_id: int) -> Note:
        """The note, with the notes that it points to and that point to it."""
        with self._reading() as connection:
            return _note(connection, note_id)

    def update(
        self,
        note_id: int,
        *,
        title: str | None = None,
        body: str | None = None,
        tags: Iterable[str] | None = None,
        if_revision: int | None = None,
    ) -> Note:
        """Replace what is given, leave the rest."""
        if title is None and body is None and tags is None:
            raise InvalidNoteError("Nothing to change: give a title, a body or tags.")
        new_title = None if title is None else clean_title(title)
        new_body = None if body is None else clean_body(body)
        new_tags = None if tags is None else clean_tags(tags)
        with self._writing() as connection:
            note = _at_revision(_note(connection, note_id), if_revision)
            return self._replace(
                connection,
                note,
                note.title if new_title is None else new_title,
                note.body if new_body is None else new_body,
                note.tags if new_tags is None else new_tags,
            )

    def append(self, note_id: int, text: str, *, if_revision: int | None = None) -> Note:
        """Add text on a line of its own at the end of the body."""
        if not text:
            raise InvalidNoteError("Nothing to append: give some text.")
        with self._writing() as connection:
            note = _at_revision(_note(connection, note_id), if_revision)
            joint = "" if not note.body or note.body.endswith("\n") else "\n"
            return self._replace(
                connection, note, note.title, clean_body(note.body + joint + text), note.tags
            )

    def tag(self, note_id: int, tags: Iterable[str]) -> Note:
        """Add tags to those that the note has."""
        added = clean_tags(tags)
        with self._writing() as connection:
            note = _note(connection, note_id)
            return self._replace(connection, note, note.title, note.body, clean_tags([*note.tags, *added]))

    def untag(self, note_id: int, tags: Iterable[str]) -> Note:
        """Take tags off the note; those that it does not have are ignored."""
        gone = set(clean_tags(tags))
        with self._writing() as connection:
            note = _note(connection, note_id)
            kept = [tag for tag in note.tags if tag not in gone]
            return self._replace(connection, note, note.title, note.body, kept)

    def delete(self, note_id: int, *, if_revision: int | None = None) -> DeletedNote:
        """Delete the note and its links for good; its id is never given again."""
        with self._writing() as connection:
            note = _at_revision(_note(connection, note_id), if_revision)
            connection.execute("DELETE FROM notes WHERE id = ?", (note_id,))
            return DeletedNote(id=note.id, title=note.title, revision=note.revision)

    def link(self, source: int, target: int) -> Note:
        """Let one note point to another; returns the first."""
        if source == target:
            raise InvalidNoteError(f"Note {source} cannot point to itself: give two different ids.")
        with self._writing() as connection:
            _require(connection, source, target)
            connection.execute("INSERT OR IGNORE INTO links (source, target) VALUES (?, ?)", (source, target))
            return _note(connection, source)

    def unlink(self, source: int, target: int) -> Note:
        """Let one note no longer point to another; returns the first."""
        with self._writing() as connection:
            _require(connection, source, target)
            connection.execute("DELETE FROM links WHERE source = ? AND target = ?", (source, target))
            return _note(connection, source)

    def list(self, *, tag: str | None = None, cursor: str | None = None, limit: int = 20) -> NotePage:
        """The notes, the most recently changed first."""
        with self._reading() as connection:
            return list_page(connection, tag, cursor, limit)

    def search(self, query: str, *, tag: str | None = None, limit: int = 10) -> SearchResult:
        """The notes that fit a query, the best first; any text is a good query (F36)."""
        with self._reading() as connection:
            return search(connection, query, tag, limit)

    def tags(self) -> TagList:
        """All tags in use, the most used first."""
        counted = "SELECT tag, count(*) AS notes FROM note_tags GROUP BY tag ORDER BY notes DESC, tag"
        with self._reading() as connection:
            return TagList(tags=[TagCount.model_validate(dict(row)) for row in connection.execute(counted)])

    def _replace(
        self, connection: sqlite3.Connection, note: Note, title: str, body: str, tags: Iterable[str]
    ) -> Note:
        if (title, body, tags) == (note.title, note.body, note.tags):
            return note
        connection.execute(
            "UPDATE notes SET title = ?, body = ?, tags = ?, updated_at = ?, revision = revision + 1 "
            "WHERE id = ?",
            (title, body, _as_json(tags), stamp(self._clock()), note.id),
        )
        return _note(connection, note.id)

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._held(), self._transaction("DEFERRED") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._held(), self._transaction("IMMEDIATE") as connection:
            yield connection
        for listener in self._listeners:
            listener()

    @contextmanager
    def _held(self) -> Generator[None]:
        if not self._lock.acquire(timeout=self._busy_seconds):
            raise DatabaseBusyError(self._busy_seconds)
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Generator[sqlite3.Connection]:
        connection = self._opened()
        try:
            connection.execute(f"BEGIN {kind}")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
                raise DatabaseBusyError(self._busy_seconds) from error
            raise NotesError(f"The notes database failed: {error}; nothing was changed.") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_database(self.path, self._busy_seconds)
        return self._connection


def _note(connection: sqlite3.Connection, note_id: int) -> Note:
    if not 0 < note_id <= MAX_ID:
        raise InvalidNoteError(f"{note_id} is not a note's id: ids are whole numbers from 1; see list_notes.")
    row = connection.execute(f"SELECT {NOTE_COLUMNS} FROM notes WHERE id = ?", (note_id,)).fetchone()
    if row is None:
        near = connection.execute(_NEIGHBOURS, {"id": note_id})
        raise NoteNotFoundError(note_id, tuple(found["id"] for found in near))
    return to_note(row, _refs(connection, _LINKS, note_id), _refs(connection, _BACKLINKS, note_id))


def _require(connection: sqlite3.Connection, *note_ids: int) -> None:
    for note_id in note_ids:
        _note(connection, note_id)


def _refs(connection: sqlite3.Connection, query: str, note_id: int) -> list[NoteRef]:
    return [NoteRef.model_validate(dict(row)) for row in connection.execute(query, (note_id,))]


def _at_revision(note: Note, expected: int | None) -> Note:
    if expected is not None and expected != note.revision:
        raise RevisionConflictError(note.id, expected, note.revision)
    return note


def _as_json(tags: Iterable[str]) -> str:
    return json.dumps(list(tags), ensure_ascii=False)
