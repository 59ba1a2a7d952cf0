"""`replace_file`: write a file atomically, so that readers see the old content or the new, never a part.

Every file of this package is written here: state, pins, kept catalogs, known eras and the configurations
of clients. Callers lock against other writers.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""The mode of a file that only its owner may read or write."""

_EXCLUSIVE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def replace_file(
    path: Path, data: bytes, mode: int = PRIVATE, *, exact: bool = False, durable: bool = True
) -> None:
    """Replace a file in one step; a reader sees the old content or the new one.

    Args:
        path: The file; a symbolic link is replaced, not its target.
        data: The new content.
        mode: The permissions of the new file.
        exact: Whether the file gets exactly this mode, whatever the umask removes.
        durable: Whether the data is on disk when this returns.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        create_file(draft, data, mode, exact=exact, durable=durable)
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def create_file(path: Path, data: bytes, mode: int, *, exact: bool = False, durable: bool = True) -> None:
    """Write a file that does not exist yet; see `replace_file` for the arguments.

    Raises:
        FileExistsError: the file exists.
        OSError: the file cannot be written.
    """
    descriptor = os.open(path, _EXCLUSIVE, mode)
    with os.fdopen(descriptor, "wb") as file:
        if exact:
            path.chmod(mode)
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
