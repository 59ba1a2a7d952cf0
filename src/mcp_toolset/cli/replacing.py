"""Replace a client's configuration file: one process at a time, with a backup, regular files only.

`install` applies its plans with it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from mcp_toolset.concurrency.atomic_file import PRIVATE, create_file, locked, replace_file
from mcp_toolset.config.jsonc import read_text
from mcp_toolset.errors import ConfigError

KEPT_BACKUPS: Final = 5  # the number of backups that are kept; older ones are removed
TIMEOUT: Final = 30.0  # seconds to wait for another process that changes the same file


@contextmanager
def held(path: Path) -> Generator[None]:
    """Lock a file against other processes of mcp-toolset, from reading it until it is replaced.

    The lock is in the user's cache folder, so that nothing is added to a project's folder.
    """
    digest = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    try:
        folder = user_cache_path("mcp-toolset", appauthor=False) / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        lock = locked(folder / f"{digest}.lock", TIMEOUT)
    except TimeoutError:
        raise ConfigError(
            f"{path}: another mcp-toolset has been changing it for {TIMEOUT:g} s; end that process"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be locked ({error.strerror}); check the permissions of the user's cache folder"
        ) from None
    with lock:
        yield


def read_regular(path: Path) -> str | None:
    """The text of a regular file, symbolic links followed; `None` if the file does not exist."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        raise _failed(path, "read", error) from None
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: {_kind(mode)} and no regular file; name or make the client's own file")
    try:
        return read_text(path, str(path))
    except FileNotFoundError:
        return None


def replace_text(path: Path, before: str | None, after: str, mode: int) -> Path | None:
    """Replace `before` with `after` in one step; return the path of the backup, None if there was no file.

    Of a symbolic link, the target is replaced. An existing file keeps its mode.
    """
    try:
        target = path.resolve()
        if read_regular(target) != before:
            raise ConfigError(f"{path}: has changed since it was read; run the command again")
        return _write(target, before, after, mode)
    except (OSError, RuntimeError) as error:
        problem = _failed(path, "written", error)
    raise problem


def _failed(path: Path, what: str, error: OSError | RuntimeError) -> ConfigError:
    cause = error.strerror if isinstance(error, OSError) else "a loop of links"
    return ConfigError(f"{path}: cannot be {what} ({cause}); {mend_of(error)}")


def mend_of(error: OSError | RuntimeError) -> str:
    number = error.errno if isinstance(error, OSError) else errno.ELOOP
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some space on the disk"
    if number == errno.ELOOP:
        return "correct the symbolic link"
    return "check the folder's permissions"


def _kind(mode: int) -> str:
    kinds = {
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((name for test, name in kinds.items() if test(mode)), "something special")


def _write(target: Path, before: str | None, after: str, mode: int) -> Path | None:
    backup = None
    target.parent.mkdir(parents=True, exist_ok=True)
    if before is not None:
        mode = target.stat().st_mode & 0o7777
        backup = _back_up(target, before, mode)
    replace_file(target, after.encode(), mode, exact=before is not None)
    return backup


def _back_up(target: Path, text: str, mode: int) -> Path:
    """A copy with the next number; the oldest beyond `KEPT_BACKUPS` are removed."""
    pattern = re.compile(re.escape(target.name) + r"\.([0-9]{1,9})\.bak")
    matches = {entry: pattern.fullmatch(entry.name) for entry in target.parent.iterdir()}
    kept = {int(match[1]): entry for entry, match in matches.items() if match and entry.is_file()}
    number = max(kept, default=0)
    while True:
        number += 1
        backup = target.with_name(f"{target.name}.{number}.bak")
        with suppress(FileExistsError):
            # The entries of a client hold keys and tokens.
            create_file(backup, text.encode(), mode & PRIVATE, exact=True)
            break
    for old in sorted(kept)[: -(KEPT_BACKUPS - 1)]:
        with suppress(OSError):
            kept[old].unlink()
    return backup
