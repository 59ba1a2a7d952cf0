"""`locked`: one process at a time writes a file that several share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from os import PathLike
from typing import Final

LOCK_STEP: Final = 0.02
"""Seconds between two looks at a lock that another process holds."""


def locked(
    path: str | PathLike[str], patience: float, *, mode: int = 0o600
) -> AbstractContextManager[object]:
    """Take the lock file at `path`, now; the `with` block that it is for releases it.

    Args:
        path: The lock file, which is made and stays.
        patience: Seconds to wait for another process.
        mode: The permissions of a new lock file.

    Raises:
        TimeoutError: another process holds it for so long.
        OSError: it cannot be made.
    """
    # It takes as long to import as this room, and a server starts without writing a file.
    from filelock import FileLock

    return FileLock(path, timeout=patience, mode=mode).acquire(poll_interval=LOCK_STEP)
