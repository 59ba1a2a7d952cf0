"""`SqliteStore`: a file that is open while it is used; `SqliteThread`: the thread that uses it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.owner_locks import OwnerLocks
from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.concurrency.task_set import ThreadEvent
from mcp_toolset.errors import InvalidStateError, StateError, StoreError

MOST_TOGETHER: Final = 64
"""Jobs of one transaction."""

_T = TypeVar("_T")
Open = Callable[[], sqlite3.Connection]


@dataclass(eq=False, slots=True)
class _Job(Generic[_T]):
    work: Callable[[sqlite3.Connection], _T]
    synced: bool
    done: ThreadEvent = field(default_factory=ThreadEvent)
    value: Any = None
    fault: BaseException | None = None


class SqliteThread:
    """Does jobs in order; each is in the file when it is done, and survives the end of the process."""

    def __init__(self, opened: Open, name: str) -> None:
        """Start the thread; `opened` opens the file, for the first job and after a failure."""
        self._open = opened
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._file: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], _T], *, synced: bool) -> _T:
        """The result of a job, once it is committed; if `synced`, it survives a power cut too."""
        job = _Job(work, synced)
        job.done.attach()
        self._jobs.put(job)
        await job.done.wait()
        if job.fault is not None:
            raise job.fault
        return job.value

    def end(self) -> None:
        """Do what was asked for, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        is_last = False
        while not is_last:
            jobs = [self._jobs.get()]
            while len(jobs) < MOST_TOGETHER and not self._jobs.empty():
                jobs.append(self._jobs.get())
            is_last = None in jobs
            self._together([job for job in jobs if job is not None])
        if self._file is not None:
            self._file.close()

    def _together(self, jobs: list[_Job[Any]]) -> None:
        """Do jobs in one transaction; a job that fails by its own fault is left out of it."""
        left = jobs
        while left:
            refused = self._refused(left)
            left = [job for job in left if job is not refused] if refused is not None else []
        for job in jobs:
            job.done.set()

    def _refused(self, jobs: list[_Job[Any]]) -> _Job[Any] | None:
        """Do jobs in one transaction; the job whose own fault undid the transaction, if any.

        If the file fails, each of the jobs has failed.
        """
        job: _Job[Any] | None = None
        try:
            file = self._begun(jobs)
            for job in jobs:
                job.value = job.work(file)
            job = None
            file.execute("COMMIT")
        # A job that waits must be told of any failure; the thread goes on with the next ones.
        except BaseException as fault:
            if job is not None and _is_own(fault) and self._is_undone():
                job.fault = fault
                return job
            self._fail(jobs, fault)
        return None

    def _begun(self, jobs: list[_Job[Any]]) -> sqlite3.Connection:
        if self._file is None:
            self._file = self._open()
        file = self._file
        file.execute("PRAGMA synchronous = " + ("FULL" if any(job.synced for job in jobs) else "NORMAL"))
        file.execute("BEGIN IMMEDIATE")
        return file

    def _is_undone(self) -> bool:
        """Undo the transaction; false if the file fails."""
        try:
            if self._file is not None:
                self._file.rollback()
        except sqlite3.Error:
            return False
        return True

    def _fail(self, jobs: list[_Job[Any]], fault: BaseException) -> None:
        for job in jobs:
            job.fault = fault
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_own(fault: BaseException) -> bool:
    """Whether a fault is of the values of one job, such as a number that SQLite cannot hold."""
    if isinstance(fault, sqlite3.Error):
        return isinstance(fault, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.ProgrammingError)
    return isinstance(fault, Exception) and not isinstance(fault, OSError)


class SqliteStore:
    """A store in one file, which is open from its first user to its last: `async with store:`.

    Attributes:
        path: The file.
        name: What errors call it.
        locks: Which processes live, for rows that belong to processes.
    """

    def __init__(self, path: Path, kind: SqliteFile, name: str, *, owned: bool = False) -> None:
        """Use a file, which is made when the store is entered.

        Args:
            path: The file.
            kind: What it is.
            name: What errors call it, such as `the journal`.
            owned: Whether rows belong to processes.
        """
        self.path = path
        self.name = name
        self.locks = OwnerLocks(path.with_name(f"{path.name}.owners"))
        self._is_owned = owned
        self._kind = kind
        self._thread: SqliteThread | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        """Open the file, unless it is open.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        self._users += 1
        if self._thread is None:
            self._thread = SqliteThread(self._opened, f"mcp-toolset {self.name}")
            try:
                await self.do(lambda file: None)
            except BaseException:
                await self.__aexit__(None, None, None)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, once its last user has left."""
        self._users -= 1
        if self._users == 0 and self._thread is not None:
            thread, self._thread = self._thread, None
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._close, thread)

    async def step(self, work: Callable[[sqlite3.Connection], _T], *, synced: bool = True) -> _T:
        """The result of one transaction; errors are those of the file and of `work`."""
        if self._thread is None:
            raise StateError(f"{self.name}, {self.path}, is not open: use it within `async with`")
        return await self._thread.do(work, synced=synced)

    async def do(self, work: Callable[[sqlite3.Connection], _T], *, synced: bool = True) -> _T:
        """The result of one transaction.

        Raises:
            StoreError: the file cannot be read or written.
            StateError: it is not open.
        """
        try:
            return await self.step(work, synced=synced)
        except (sqlite3.Error, OSError, InvalidStateError) as fault:
            raise StoreError(
                f"{self.name}, {self.path}, cannot be read or written: {fault}; name another file"
            ) from fault

    def _opened(self) -> sqlite3.Connection:
        """The file, in the thread that uses it."""
        if self._is_owned:
            self.locks.hold()
        return self._kind.open(self.path)

    def _close(self, thread: SqliteThread) -> None:
        thread.end()
        self.locks.release()
