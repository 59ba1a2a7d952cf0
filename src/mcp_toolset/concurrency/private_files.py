"""Files and folders that no other user may write to: how they are made and checked."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from mcp_toolset.errors import InvalidStateError

__all__ = ["is_private", "opened", "private_file", "read_regular", "require_private"]

_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read it; a pipe in its place does not wait for a writer."""
    return os.fdopen(os.open(path, _READ), "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    with opened(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read()


def is_private(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and no other may write to it; true where modes say nothing."""
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def require_private(status: os.stat_result) -> None:
    """Check a file before it is read.

    Raises:
        InvalidStateError: it is no regular file, or another user may have written it.
    """
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
