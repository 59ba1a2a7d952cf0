"""The notes store: bad input, concurrency, and files that cannot be served."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servers.notes.notes_server.database import APPLICATION_ID, MIGRATIONS, open_database
from servers.notes.notes_server.errors import (
    DatabaseBusyError,
    DatabaseUnusableError,
    InvalidNoteError,
    NoteNotFoundError,
    NotesError,
    RevisionConflictError,
)
from servers.notes.notes_server.models import MAX_BODY, MAX_TAGS
from servers.notes.notes_server.store import NoteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NoteStore]:
    with NoteStore(tmp_path / "deep" / "er" / "notes.db") as opened:
        yield opened


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda store: store.add("  \n", "body"), "title is empty"),
        (lambda store: store.add("a\0b", ""), "NUL"),
        (lambda store: store.add("a", "\ud800"), "surrogate"),
        (lambda store: store.add("a", "b" * (MAX_BODY + 1)), "shorten it"),
        (lambda store: store.add("a", "", ["a,b"]), "comma"),
        (lambda store: store.add("a", "", ["#"]), "is empty"),
        (lambda store: store.add("a", "", [str(n) for n in range(MAX_TAGS + 1)]), "at most 32 tags"),
        (lambda store: store.update(1), "Nothing to change"),
        (lambda store: store.append(1, ""), "Nothing to append"),
        (lambda store: store.list(limit=0), "from 1 to 100"),
        (lambda store: store.list(cursor="!"), "not one that list_notes gave"),
        (
            lambda store: store.list(cursor="MjAyNi0wMS0wMVQwMDowMDowMC4wWi85OTk5OTk5OTk5OTk5OTk5OTk5OTk="),
            "cursor",
        ),
        (lambda store: store.link(1, 1), "two different ids"),
        (lambda store: store.get(0), "whole numbers from 1"),
        (lambda store: store.get(2**63), "whole numbers from 1"),
    ],
)
def test_bad_input_says_the_mend_and_changes_nothing(
    store: NoteStore, attempt: Callable[[NoteStore], object], message: str
) -> None:
    before = store.add("One", "body")
    with pytest.raises(InvalidNoteError, match=message):
        attempt(store)
    assert store.get(before.id) == before
    assert store.list().total == 1


def test_an_unknown_id_names_its_neighbours(store: NoteStore) -> None:
    with pytest.raises(NoteNotFoundError, match="no notes yet"):
        store.get(1)
    for number in range(6):
        store.add(f"Note {number}", "")
    store.delete(4)
    with pytest.raises(NoteNotFoundError, match="nearest ids are 2, 3, 5, 6"):
        store.get(4)
    with pytest.raises(NoteNotFoundError, match="nearest ids are 5, 6"):
        store.get(99)


def test_a_failed_update_leaves_the_note_as_it_was(store: NoteStore) -> None:
    note = store.add("One", "body", ["a"])
    store.append(note.id, "more")
    with pytest.raises(RevisionConflictError, match="at revision 2, not 1.*if_revision=2"):
        store.update(note.id, title="Two", if_revision=1)
    with pytest.raises(RevisionConflictError):
        store.delete(note.id, if_revision=1)
    assert (store.get(note.id).title, store.get(note.id).body) == ("One", "body\nmore")


def test_pages_hold_while_notes_come_and_go(store: NoteStore) -> None:
    for number in range(5):
        store.add(f"Note {number}", "")
    first = store.list(limit=2)
    store.add("Newer", "")
    store.delete(first.notes[-1].id)
    second = store.list(limit=9, cursor=first.next_cursor)
    assert [note.title for note in second.notes] == ["Note 2", "Note 1", "Note 0"]
    assert second.next_cursor is None


def test_two_processes_and_many_threads_lose_no_update(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    stores = [NoteStore(path), NoteStore(path)]
    note = stores[0].add("Counter", "0")

    def increment(number: int) -> None:
        mine = stores[number % 2]
        while True:
            read = mine.get(note.id)
            try:
                mine.update(note.id, body=str(int(read.body) + 1), if_revision=read.revision)
            except RevisionConflictError:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, range(80)))
    assert (stores[0].get(note.id).body, stores[1].get(note.id).revision) == ("80", 81)
    for opened in stores:
        opened.close()


def test_many_first_openings_at_once_make_one_database(tmp_path: Path) -> None:
    stores = [NoteStore(tmp_path / "notes.db") for _ in range(8)]
    together = threading.Barrier(len(stores))

    def begin(opened: NoteStore) -> int:
        together.wait(10)
        return opened.add("Hello", "").id

    with ThreadPoolExecutor(len(stores)) as pool:
        assert sorted(pool.map(begin, stores)) == list(range(1, len(stores) + 1))
    for opened in stores:
        opened.close()


def test_a_database_that_stays_busy_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with NoteStore(path, busy_seconds=0.05) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusyError, match="Try again"):
            store.add("One", "")
        other.execute("ROLLBACK")
        other.close()
        assert store.add("One", "").id == 1


def test_damage_found_while_serving_is_an_error_of_ours(store: NoteStore) -> None:
    with sqlite3.connect(store.path) as other:
        other.execute("DROP TABLE links")
    other.close()
    with pytest.raises(NotesError, match="no such table: links"):
        store.add("One", "")
    assert store.list().total == 0


def test_an_older_database_is_migrated_with_its_notes(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    connection = sqlite3.connect(path)
    for statement in (*MIGRATIONS[0], "PRAGMA user_version = 1"):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO notes (title, body, tags, created_at, updated_at) VALUES ('Old', 'gold', ?, ?, ?)",
        ('["t"]', *("2026-01-01T00:00:00.000000Z",) * 2),
    )
    connection.commit()
    connection.close()
    with NoteStore(path) as store:
        new = store.add("New", "")
        assert [link.title for link in store.link(new.id, 1).links] == ["Old"]
        assert [hit.title for hit in store.search("gold", tag="t").hits] == ["Old"]


def _text(path: Path) -> None:
    path.write_text("These are my notes, not a database.\n" * 100)


def _newer(path: Path) -> None:
    open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()


def _newer_and_not_checkpointed(path: Path) -> None:
    other = path.with_name("other.db")
    connection = open_database(other)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    shutil.copy(other, path)
    shutil.copy(f"{other}-wal", f"{path}-wal")
    connection.close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE places (url TEXT)")
    connection.close()


def _truncated(path: Path) -> None:
    with NoteStore(path) as store:
        for number in range(50):
            store.add(f"Note {number}", "word " * 500)
    path.write_bytes(path.read_bytes()[:9000])


def _scribbled(path: Path) -> None:
    with NoteStore(path) as store:
        for number in range(50):
            store.add(f"Note {number}", "word " * 500)
    content = bytearray(path.read_bytes())
    content[4096 : len(content)] = bytes(b ^ 0x5A for b in content[4096:])
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_text, "not a database"),
        (_newer, "newer version.*upgrade the server"),
        (_newer_and_not_checkpointed, "newer version"),
        (_foreign, "another program"),
        (_truncated, "malformed"),
        (_scribbled, "malformed|damaged"),
    ],
)
def test_a_file_that_cannot_be_served_stays_as_it_was(
    tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "notes.db"
    spoil(path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DatabaseUnusableError, match=message) as raised:
        NoteStore(path).open()
    assert "\n" not in str(raised.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_a_folder_or_a_file_in_the_way_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusableError, match="choose another"):
        NoteStore(tmp_path).open()
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnusableError, match="choose another"):
        NoteStore(tmp_path / "file" / "notes.db").open()


def test_the_file_says_whose_it_is(store: NoteStore) -> None:
    connection = sqlite3.connect(store.path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
