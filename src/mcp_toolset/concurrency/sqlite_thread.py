"""`SqliteThread`: the thread that uses a file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.task_set import ThreadEvent

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
