"""`LogFile`: the log of one process: lines in files that only their user can read, in a bounded folder.

A process writes `20261123T054109-4711.0001.jsonl`, then `….0002.jsonl` when that is full. Nothing is renamed,
so a reader that follows the log misses no line. If a line cannot be written, the process goes on without it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["LEVEL_VARIABLE", "NAME", "OFF", "VARIABLE", "LogFile", "log_folder"]

VARIABLE: Final = "MCP_TOOLSET_LOG"
"""The environment variable that names another folder; `off` for no log."""

LEVEL_VARIABLE: Final = "MCP_TOOLSET_LOG_LEVEL"
"""The environment variable that names the least level of the lines that are kept."""

OFF: Final = "off"

PART: Final = 1 << 20
"""Bytes of a file."""

PARTS: Final = 4
"""Files that one process keeps."""

FOLDER: Final = 32 << 20
"""Bytes of all files in the folder; beyond that the oldest are removed."""

MOST: Final = 200
"""Files in the folder."""

AGE: Final = 14 * 86_400.0
"""Seconds after its last line after which a file is removed."""

NAME: Final = re.compile(r"(?P<run>\d{8}T\d{6}-\d+)\.(?P<part>\d{4,})\.jsonl")

_CREATE: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
_BINARY: Final = getattr(os, "O_BINARY", 0)


def log_folder() -> Path:
    """The folder, by `MCP_TOOLSET_LOG` or else by the convention of the platform."""
    said = os.environ.get(VARIABLE, "")
    if said and said != OFF:
        return Path(said)
    # It takes as long to import as this room, and the file is opened once a server serves.
    from platformdirs import user_log_path

    return user_log_path("mcp-toolset")


class LogFile:
    """The log of this process."""

    def __init__(self, folder: Path, first: Callable[[], bytes]) -> None:
        """Name the folder; the first line creates the file.

        Args:
            folder: The folder, which is made when it is needed.
            first: The line with which each file begins.
        """
        self.folder = folder  # the folder of the files
        self._first = first
        self._run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        self._part = 0
        self._file: int | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        """Add a line, which ends with a line break: all of it, or nothing."""
        if self._file is None or self._size + len(line) > PART or not os.fstat(self._file).st_nlink:
            self._next()
        assert self._file is not None
        data = line if self._size else self._first() + line
        written = os.write(self._file, data)
        if written < len(data):
            # The disk is full: half a line would spoil the next one.
            os.ftruncate(self._file, self._size)
            raise OSError("the disk is full")
        self._size += written

    def close(self) -> None:
        """Close the file; another line would open the next one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _next(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.close()
        while self._file is None:
            self._part += 1
            with suppress(FileExistsError):
                self._file = os.open(self._path(self._part), _CREATE | _BINARY, 0o600)
        self._size = 0
        self._remove_old()

    def _path(self, part: int) -> Path:
        return self.folder / f"{self._run}.{part:04d}.jsonl"

    def _remove_old(self) -> None:
        # What another process removes at the same time is gone, and Windows keeps files that are open.
        with suppress(OSError):
            self._path(self._part - PARTS).unlink()
        try:
            found = [(one.stat(), one) for one in os.scandir(self.folder) if NAME.fullmatch(one.name)]
        except OSError:
            return
        found.sort(key=lambda each: each[0].st_mtime, reverse=True)
        size, oldest = 0, time.time() - AGE
        for number, (status, one) in enumerate(found):
            size += status.st_size
            if number >= MOST or size > FOLDER or status.st_mtime < oldest:
                with suppress(OSError):
                    os.unlink(one)
