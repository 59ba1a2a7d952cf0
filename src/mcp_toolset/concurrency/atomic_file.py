"""`replace_file`: a file is written as a whole or not at all, whatever ends the process meanwhile.

Every file that this package keeps is written here: state, pins, kept catalogs, known eras and the
configurations of clients. Locks against other writers are the callers' own.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""The mode of a file that nobody but its user may read or write."""

_EXCLUSIVE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def replace_file(
    path: Path, data: bytes, mode: int = PRIVATE, *, exact: bool = False, durable: bool = True
) -> None:
    """Put a file in the place of what is there, in one step; who reads sees the old one or the new one.

    Args:
        path: The file; a link is replaced, not what it leads to.
        data: What it holds from now on.
        mode: The permissions of the new file.
        exact: Whether it has exactly these, whatever the umask takes away.
        durable: Whether it is on disk when this returns.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        create_file(draft, data, mode, exact=exact, durable=durable)
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def create_file(path: Path, data: bytes, mode: int, *, exact: bool = False, durable: bool = True) -> None:
    """Write a file that is not there yet; see `replace_file` for the arguments.

    Raises:
        FileExistsError: it is there.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, _EXCLUSIVE, mode)
    with os.fdopen(descriptor, "wb") as file:
        if exact:
            path.chmod(mode)
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
