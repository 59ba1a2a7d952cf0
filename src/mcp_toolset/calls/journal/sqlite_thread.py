"""`SqliteThread`: one connection to a file, in a thread; jobs that come at the same time share a commit."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.thread_event import ThreadEvent

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
        """Do jobs in one transaction; if that fails, each of them has failed."""
        try:
            if jobs:
                self._committed(jobs)
        # A job that waits must be told of any failure; the thread goes on with the next ones.
        except BaseException as fault:
            for job in jobs:
                job.fault = fault
            if self._file is not None:
                self._file.close()
                self._file = None
        for job in jobs:
            job.done.set()

    def _committed(self, jobs: list[_Job[Any]]) -> None:
        if self._file is None:
            self._file = self._open()
        file = self._file
        file.execute("PRAGMA synchronous = " + ("FULL" if any(job.synced for job in jobs) else "NORMAL"))
        file.execute("BEGIN IMMEDIATE")
        for job in jobs:
            job.value = job.work(file)
        file.execute("COMMIT")
