"""`replace_file`: readers see the old content or the new, never a part; `locked`: one writer at a time.

Every file of this package is written here: state, pins, kept catalogs, known eras and the configurations
of clients. Callers lock against other writers.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import AbstractContextManager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

from mcp_toolset.errors import InvalidStateError

PRIVATE: Final = 0o600  # The mode of a file that only its owner may read or write.

_EXCLUSIVE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def replace_file(
    path: Path, data: bytes, mode: int = PRIVATE, *, exact: bool = False, durable: bool = True
) -> None:
    """Replace a file in one step; a reader sees the old content or the new one.

    Args:
        path: The file; a symbolic link is replaced, not its target.
        data: The new content.
        mode: The permissions of the new file.
        exact: True if the file gets exactly this mode, whatever the umask removes.
        durable: True if the data is on disk when this returns.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        create_file(draft, data, mode, exact=exact, durable=durable)
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def create_file(path: Path, data: bytes, mode: int, *, exact: bool = False, durable: bool = True) -> None:
    descriptor = os.open(path, _EXCLUSIVE, mode)
    with os.fdopen(descriptor, "wb") as file:
        if exact:
            path.chmod(mode)
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


LOCK_STEP: Final = 0.02  # Seconds between two looks at a lock that another process holds.


def locked(path: str | PathLike[str], timeout: float, *, mode: int = 0o600) -> AbstractContextManager[object]:
    """Take the lock file at `path`, which stays, within `timeout` seconds, until the `with` block ends."""
    # It takes as long to import as this room, and a server starts without writing a file.
    from filelock import FileLock

    return FileLock(path, timeout=timeout, mode=mode).acquire(poll_interval=LOCK_STEP)


_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    return os.fdopen(os.open(path, _READ), "rb")


def read_regular(path: str | os.PathLike[str], limit: int = -1) -> bytes:
    """The bytes of a file, or its first ones up to a limit; `OSError` if it is no regular file, as a pipe."""
    with opened(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(limit)


def is_private(status: os.stat_result) -> bool:
    """True if a file or folder is this user's, and no other may write to it; true where modes say nothing."""
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def require_private(status: os.stat_result) -> None:
    """Raise `InvalidStateError` unless a file is regular, and only its owner may have written it."""
    if not stat.S_ISREG(status.st_mode):
        raise InvalidStateError("it is not a regular file")
    if not is_private(status):
        raise InvalidStateError("another user owns it or may write to it; remove it, or chmod it to 600")


def private_file(path: Path) -> None:
    """Make an empty file, and its folder, which only this user can read, unless they are there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One that is there stays closed: to close it would give up the locks that SQLite has of it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
