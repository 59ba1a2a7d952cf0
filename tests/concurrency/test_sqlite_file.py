"""`SqliteFile`: every file of the package is opened, claimed and migrated in one way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from mcp_toolset import ToolsetError
from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.grants import GrantLedger

pytestmark = pytest.mark.anyio
Opened = Callable[[Path], Awaitable[None]]


async def journal(path: Path) -> None:
    from mcp_toolset.extensions.journal.journal_store import JournalStore

    async with JournalStore(path):
        pass


async def processes(path: Path) -> None:
    from mcp_toolset.extensions.processes.extension import ProcessRecords

    async with ProcessRecords(path, ttl=60, timeout=60):
        pass


async def suspended(path: Path) -> None:
    from mcp_toolset.calls.suspended import SuspendedStore

    async with SuspendedStore(path).running():
        pass


async def approvals(path: Path) -> None:
    from mcp_toolset.policy import Approvals

    await anyio.Path(path).touch()
    await anyio.to_thread.run_sync(Approvals(path).waiting)


async def statistics(path: Path) -> None:
    from mcp_toolset.extensions.statistics.store import StatisticsStore

    await anyio.to_thread.run_sync(StatisticsStore(path).add, "served", {})


async def grants(path: Path) -> None:
    GrantLedger(path).close()


async def vectors(path: Path) -> None:
    from mcp_toolset.search import VectorFile

    VectorFile(path).close()


STORES = [
    pytest.param(journal, marks=pytest.mark.needs("journal")),
    pytest.param(processes, marks=pytest.mark.needs("processes")),
    pytest.param(suspended, marks=pytest.mark.needs("suspended")),
    pytest.param(approvals, marks=pytest.mark.needs("approvals")),
    pytest.param(statistics, marks=pytest.mark.needs("statistics")),
    grants,
    pytest.param(vectors, marks=pytest.mark.needs("sentence_models")),
]


def a_text(path: Path) -> None:
    path.write_text("these are somebody's notes, not a database\n" * 40)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE songs (title TEXT)")


def of_another_kind(path: Path) -> None:
    SqliteFile(b"MTs?", ("CREATE TABLE songs (title TEXT)",)).open(path).close()


SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (a_text, "not a database"),
    (of_another_program, "of another program"),
    (of_another_kind, "of another program"),
]


@pytest.mark.parametrize("store", STORES, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("spoil", "says"), SPOILT, ids=lambda one: getattr(one, "__name__", ""))
async def test_j1_a_file_of_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, store: Opened, spoil: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / "file"
    spoil(path)
    before = path.read_bytes()
    with anyio.fail_after(60), pytest.raises(ToolsetError, match=says):
        await store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("store", STORES, ids=lambda one: one.__name__)
async def test_j1_a_file_of_a_later_version_is_refused(tmp_path: Path, store: Opened) -> None:
    path = tmp_path / "file"
    with anyio.fail_after(60):
        await store(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("PRAGMA user_version = 9")
        with pytest.raises(ToolsetError, match="have version 9 and this program knows version 1"):
            await store(path)


def test_j1_a_file_is_brought_to_the_tables_of_today_and_keeps_its_rows(tmp_path: Path) -> None:
    first = "CREATE TABLE songs (title TEXT);\nINSERT INTO songs VALUES ('Lili')"
    second = "ALTER TABLE songs ADD COLUMN year INTEGER NOT NULL DEFAULT 1915"
    SqliteFile(b"MTs?", (first,)).open(tmp_path / "file").close()
    for _ in range(2):
        with closing(SqliteFile(b"MTs?", (first, second)).open(tmp_path / "file")) as file:
            assert file.execute("SELECT * FROM songs").fetchall() == [("Lili", 1915)]


def test_j1_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    first = "CREATE TABLE songs (title TEXT)"
    SqliteFile(b"MTs?", (first,)).open(tmp_path / "file").close()
    with pytest.raises(sqlite3.OperationalError):
        SqliteFile(b"MTs?", (first, "CREATE TABLE years (year INTEGER);\nnonsense")).open(tmp_path / "file")
    with closing(SqliteFile(b"MTs?", (first,)).open(tmp_path / "file")) as file:
        assert file.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


@pytest.mark.parametrize("attempt", range(20))
def test_j1_many_that_begin_with_one_file_at_once_make_its_tables_once(tmp_path: Path, attempt: int) -> None:
    kind = SqliteFile(b"MTs?", ("CREATE TABLE songs (title TEXT);\nINSERT INTO songs VALUES ('Lili')",))
    go, faults = threading.Barrier(8), list[str]()

    def begin() -> None:
        go.wait(30)
        try:
            kind.open(tmp_path / "file").close()
        except (sqlite3.Error, OSError) as fault:
            faults.append(str(fault))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    with closing(kind.open(tmp_path / "file")) as file:
        assert (faults, file.execute("SELECT count(*) FROM songs").fetchone()) == ([], (1,))


OTHER = """
import sqlite3, sys
from contextlib import closing

with closing(sqlite3.connect(sys.argv[1], isolation_level=None)) as file:
    file.execute("INSERT INTO songs VALUES (?)", (sys.argv[2],))
    print(*(row[0] for row in file.execute("SELECT title FROM songs")))
"""


def test_j1_a_file_that_is_opened_twice_in_one_process_loses_nothing_to_another(tmp_path: Path) -> None:
    kind = SqliteFile(b"MTs?", ("CREATE TABLE songs (title TEXT)",))

    def of_another_process(title: str) -> list[str]:
        told = subprocess.run(
            [sys.executable, "-c", OTHER, str(tmp_path / "file"), title],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return told.stdout.split()

    with closing(kind.open(tmp_path / "file")) as first:
        first.execute("INSERT INTO songs VALUES ('Lili')")
        kind.open(tmp_path / "file").close()
        assert of_another_process("Marleen") == ["Lili", "Marleen"]
        first.execute("INSERT INTO songs VALUES ('Abend')")
        assert of_another_process("Lied") == ["Lili", "Marleen", "Abend", "Lied"]


@pytest.mark.parametrize("store", STORES[:5], ids=lambda one: one.__name__)
async def test_j1_a_file_without_a_version_is_taken_over(tmp_path: Path, store: Opened) -> None:
    path = tmp_path / "file"
    with anyio.fail_after(60):
        await store(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("PRAGMA user_version = 0")
        await store(path)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
