"""`FileStore`: entries in an SQLite file, for processes of one machine; `DirectFile`: one that never waits.

`FileStore` writes in a thread, in which steps at one time share a transaction. `DirectFile` reads where it is
asked, on a connection of its own that no writer delays (WAL); its writes wait for the disk, and belong in a
worker thread. Whether another process lives is told by its lock; see `OwnerLocks`.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import RLock
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio.to_thread
from filelock import FileLock, Timeout

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import PRIVATE
from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.concurrency.tasks import ThreadEvent
from mcp_toolset.errors import InvalidStateError, StateError, StoreError
from mcp_toolset.stores.sql import FORGET, FORGET_EVERY, TABLES, changing, naming, reading, trimming
from mcp_toolset.stores.store import ABSENT, Entry, Place, Put, Store

_SUFFIX = ".lock"


class OwnerLocks:
    """The locks of the processes that use one journal. Methods wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = ""
        self._held: FileLock | None = None

    def hold(self) -> None:
        if self._held is None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while self._held is None:
                self._held = self._taken(secrets.token_hex(12))

    def lives(self, owner: str) -> bool:
        if owner == self.own:
            return True
        if not (self.folder / (owner + _SUFFIX)).exists():
            return False
        lock = self._lock(owner)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        self._end(lock)
        return False

    def release(self) -> None:
        if self._held is not None:
            self._end(self._held)
            self._held = None

    def sweep(self) -> None:
        for path in self.folder.glob("*" + _SUFFIX):
            self.lives(path.name.removesuffix(_SUFFIX))

    def _taken(self, name: str) -> FileLock | None:
        """The lock of a new name; `None` if another process has swept its file away meanwhile."""
        lock = self._lock(name)
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if lock.is_locked and Path(lock.lock_file).exists():
            self.own = name
            return lock
        lock.release()
        return None

    def _lock(self, owner: str) -> FileLock:
        return FileLock(self.folder / (owner + _SUFFIX), mode=PRIVATE, thread_local=False)

    @staticmethod
    def _end(lock: FileLock) -> None:
        # Removed while it is held: a name is never used again, so the next look finds no file.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


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
    """True if a fault is of the values of one job, such as a number that SQLite cannot hold."""
    if isinstance(fault, sqlite3.Error):
        return isinstance(fault, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.ProgrammingError)
    return isinstance(fault, Exception) and not isinstance(fault, OSError)


FILE: Final = SqliteFile(b"MTse", (TABLES,))

WRITE_TIMEOUT: Final = 5.0
"""Seconds that a write of `DirectFile` waits for other processes."""

READ_TIMEOUT: Final = 0.1
"""Seconds that a read of `DirectFile` waits; in WAL mode only the repair after a crash makes it wait."""


_log = logging.getLogger("mcp_toolset.stores")


class FileStore(Store):
    """Entries in one file, readable by its user only. It is open from its first user to its last."""

    def __init__(
        self, path: Path, name: str, *, owned: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        """Use a file, which is made when the store is entered.

        Args:
            path: The file.
            name: Its name in errors.
            owned: True if it has to be told which of its users live.
            clock: Seconds since the epoch.
        """
        self.path = path  # the file
        self.name = name
        self.locks = OwnerLocks(path.with_name(f"{path.name}.owners"))  # which of its users live
        self._is_owned = owned
        self._now = clock
        self._thread: SqliteThread | None = None
        self._users = self._steps = self._inode = 0

    async def __aenter__(self) -> Self:
        """Open the file, unless it is open; what killed processes have left goes."""
        self._users += 1
        if self._thread is None:
            self._thread = SqliteThread(self._opened, f"mcp-toolset {self.name}")
            try:
                await self._thread.do(lambda file: None, synced=False)
                if self._is_owned:
                    self.own = self.locks.own
                    await anyio.to_thread.run_sync(self.locks.sweep)
            except BaseException as fault:
                await self.__aexit__(None, None, None)
                if isinstance(fault, sqlite3.Error | OSError | InvalidStateError):
                    message = (
                        f"{self.name}, {self.path}, cannot be read or written: {fault}; name another file"
                    )
                    raise StoreError(message) from fault
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
                await anyio.to_thread.run_sync(thread.end)
                await anyio.to_thread.run_sync(self.locks.release)

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        now = self._now()
        return await self.step(lambda file: _entries(file, places, now))

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        return await self.step(lambda file: self._written(file, puts, synced), synced=synced)

    async def names(self, shelf: str) -> Sequence[str]:
        now = self._now()
        return await self.step(lambda file: _names(file, shelf, now))

    async def lives(self, owner: str) -> bool:
        return await self.step(lambda file: self.locks.lives(owner))

    async def step(self, work: Callable[[sqlite3.Connection], _T], *, synced: bool = False) -> _T:
        """The result of one transaction.

        Raises:
            StoreError: the file cannot be read or written.
            StateError: it is not open.
        """
        if self._thread is None:
            raise StateError(f"{self.name}, {self.path}, is not open: use it within `async with`")
        try:
            return await self._thread.do(work, synced=synced)
        except (sqlite3.Error, OSError, InvalidStateError) as fault:
            _log.error("%s, %s: %s", self.name, self.path, fault)
            raise StoreError(f"{self.name} cannot be read or written now; try again later") from fault

    def _written(
        self, file: sqlite3.Connection, puts: Sequence[Put], synced: bool
    ) -> Sequence[Entry | None] | None:
        if synced and os.stat(self.path).st_ino != self._inode:
            raise FileNotFoundError(f"{self.path} was replaced; it is opened again")
        now = self._now()
        self._steps += 1
        if self._steps % FORGET_EVERY == 1:
            file.execute(FORGET, (now,))
        return _written(file, puts, now)

    def _opened(self) -> sqlite3.Connection:
        """The file, in the thread that uses it."""
        if self._is_owned:
            self.locks.hold()
        file = FILE.open(self.path)
        self._inode = os.stat(self.path).st_ino
        return file


class DirectFile(Store):
    """Entries in one file, which is open from its making on. No step waits for a loop."""

    def __init__(self, path: Path, name: str, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or create it, readable by its user only; its folder must exist.

        Raises:
            StoreError: it cannot be opened, is damaged, of another program, or of a later version of this
                one. The file is unchanged.
        """
        self.path = path
        self.name = name
        self._now = clock
        self._steps = 0
        self._writing, self._reading = RLock(), RLock()
        try:
            _require_whole(path)
            self._writer = FILE.open(path, timeout=WRITE_TIMEOUT)
            try:
                # What was taken or removed must stay so, even after a loss of power.
                self._writer.execute("PRAGMA synchronous = FULL")
                self._reader = FILE.open(path)
                self._reader.execute(f"PRAGMA busy_timeout = {READ_TIMEOUT * 1000:.0f}")
            except BaseException:
                self._writer.close()
                raise
        except (sqlite3.Error, OSError) as fault:
            what, mend = (
                name.removeprefix("the "),
                "move it away to begin with an empty one, or name another file",
            )
            raise StoreError(
                f"{path}: it cannot be used for {what}, and was not changed: {fault}; {mend}"
            ) from fault
        self._reader.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        """Close the file; later steps raise `StoreError`."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        return self._read(lambda file: _entries(file, places, self._now()))

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        now = self._now()
        try:
            with self._writing, transaction(self._writer):
                self._steps += 1
                if self._steps % FORGET_EVERY == 1:
                    self._writer.execute(FORGET, (now,))
                return _written(self._writer, puts, now)
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    async def names(self, shelf: str) -> Sequence[str]:
        return self._read(lambda file: _names(file, shelf, self._now()))

    async def lives(self, owner: str) -> bool:
        return False

    def _read(self, read: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with self._reading:
                return read(self._reader)
        except (sqlite3.Error, UnicodeError) as fault:
            raise self._unusable(fault) from fault

    def _unusable(self, fault: Exception) -> StoreError:
        _log.error("%s: %s", self.path, fault)
        return StoreError(f"{self.name} cannot be looked up or kept now; try again later")


def _entries(file: sqlite3.Connection, places: Sequence[Place], now: float) -> list[Entry | None]:
    rows = (file.execute(*reading(place, now)[:2]).fetchone() for place in places)
    return [None if row is None else Entry(*row) for row in rows]


def _names(file: sqlite3.Connection, shelf: str, now: float) -> list[str]:
    return [name for (name,) in file.execute(*naming(shelf, now)[:2])]


def _written(file: sqlite3.Connection, puts: Sequence[Put], now: float) -> list[Entry | None] | None:
    """Make changes in the transaction that holds the file's lock."""
    entries = partial(_entries, file, [(put.shelf, put.name) for put in puts], now)
    if len(puts) > 1:
        standing = entries()
        tags = [ABSENT if one is None else one.tag for one in standing]
        if any(put.known not in (None, tag) for put, tag in zip(puts, tags, strict=True)):
            return standing
    for put in puts:
        text, values, must = changing(put, now)
        if not file.execute(text, values).rowcount and must:
            return entries()
        if put.max_entries is not None:
            file.execute(*trimming(put)[:2])
    return None


def _require_whole(path: Path) -> None:
    """Refuse a damaged file before it is opened to be written."""
    path.parent.stat()  # a folder that is not there is not made
    if path.exists() and path.stat().st_size:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            if (damage := file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"it is damaged ({damage})")
