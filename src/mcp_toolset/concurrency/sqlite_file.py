"""`SqliteFile`: the one way to open, claim and migrate an SQLite file of this package."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import private_file

__all__ = ["SqliteFile", "transaction"]

TIMEOUT: Final = 5.0
"""Seconds that a step waits for other processes."""

_STEP: Final = 0.01
_SMALLEST: Final = 512
"""Bytes of the smallest page that a database can have."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A kind of file: how such a file is told from others, and what its tables are.

    Attributes:
        letters: Four letters that no other kind has, for SQLite's `application_id`.
        steps: The migrations to each version of the tables; an empty file is version 0:
            statements with `;` at the ends of lines between them. A change of the tables appends a step;
            SQLite's `user_version` counts the steps.
    """

    letters: bytes
    steps: tuple[str, ...]

    def open(self, path: Path | None, *, timeout: float = TIMEOUT) -> sqlite3.Connection:
        """Open a file, which is made, for this user only, if it is not there; its tables are today's.

        Any thread may use the connection, one at a time. A file of another kind is left as it is.

        Args:
            path: The file; `None` for one in memory.
            timeout: Seconds that each step waits for other processes.

        Raises:
            sqlite3.Error: it is of another program, of a later version, or cannot be read.
            OSError: it cannot be made or read.
        """
        if path is not None:
            private_file(path)
            self._require_own(path)
        place = ":memory:" if path is None else path
        file = sqlite3.connect(place, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            _log_ahead(file)
            # Whose file it is was looked at in one transaction, and is again in the one that writes.
            if file.execute("PRAGMA user_version").fetchone()[0] != len(self.steps):
                with transaction(file):
                    self._migrate(file)
        except BaseException:
            file.close()
            raise
        return file

    def _require_own(self, path: Path) -> None:
        """Look at a file before it is opened to be written, which would make a log beside it.

        Raises:
            sqlite3.Error: it is of another program, of a later version, or cannot be read.
        """
        if 0 < path.stat().st_size < _SMALLEST:
            raise sqlite3.DatabaseError("file is not a database")
        # SQLite looks: a file that is closed otherwise gives up the locks of all its connections in this
        # process (https://www.sqlite.org/howtocorrupt.html, 2.2).
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            # One look at it: another process may be making the tables just now.
            file.execute("BEGIN")
            self._version(file)

    def _version(self, file: sqlite3.Connection) -> int:
        """The version of a file that is of this kind or empty."""
        kind, version = (file.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
        is_empty = not (kind or version) and not file.execute("SELECT 1 FROM sqlite_master").fetchone()
        if kind != int.from_bytes(self.letters) and not is_empty:
            raise sqlite3.DatabaseError("it is a database of another program")
        if version > len(self.steps):
            raise sqlite3.DatabaseError(
                f"its tables have version {version} and this program knows version {len(self.steps)}"
            )
        return version

    def _migrate(self, file: sqlite3.Connection) -> None:
        """Bring the tables up to today, unless another process was quicker."""
        for step in self.steps[self._version(file) :]:
            for statement in step.split(";\n"):
                file.execute(statement)
        file.execute(f"PRAGMA application_id = {int.from_bytes(self.letters)}")
        file.execute(f"PRAGMA user_version = {len(self.steps)}")


_MARKS: Final = ("application_id", "user_version")


def _log_ahead(file: sqlite3.Connection) -> None:
    """Make the file use a write-ahead log (WAL), which readers do not wait for.

    SQLite waits for other processes by itself, but not here, where several begin with one file at once.
    """
    waiting, until = threading.Event(), time.monotonic() + TIMEOUT
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            waiting.wait(_STEP)
        else:
            return


@contextmanager
def transaction(file: sqlite3.Connection) -> Generator[None]:
    """Commit what a block writes, or leave everything as it was."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
