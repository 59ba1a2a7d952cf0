"""`OwnerLocks`: whether the process lives that has begun a call, told by a lock that ends with the process.

Nothing has to be renewed in time, and no clock or number of a process is compared.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mcp_toolset.concurrency.atomic_file import PRIVATE

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
