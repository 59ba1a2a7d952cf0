"""`KeptFiles`: a `KeptCatalog` for each mounted server in a shared folder.

Only its owner may read or write it. A file that is corrupt, foreign or writable for others is ignored, with
one warning; no error here prevents a server's start.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.concurrency.atomic_file import locked, opened, replace_file, require_private
from mcp_toolset.errors import InvalidStateError

MOST_BYTES: Final = 64 * 1024 * 1024
"""The largest size of a file in bytes; a larger one is neither read nor written."""

MOST_FILES: Final = 1000
"""The number of files in the folder; the oldest are removed first."""

LOCK_PATIENCE: Final = 5.0
"""Seconds that a save waits for another process; after that it is skipped."""

_log = logging.getLogger("mcp_toolset.catalog")


class KeptFiles:
    """Reads and writes the files of one folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use this folder; it is created by the first save."""
        self.folder = Path(folder)
        self._warned: set[str] = set()

    def load(self, key: str) -> KeptCatalog | None:
        """The catalog under a key, if it is usable."""
        path = self._path(key)
        try:
            with opened(path) as file:
                _check(os.fstat(file.fileno()))
                return KeptCatalog.from_json(file.read())
        except FileNotFoundError:
            return None
        except InvalidStateError as fault:
            self._warn(key, f"{path}: what was kept of a server is ignored: {fault}")
        except OSError as fault:
            self._warn(key, f"{path}: what was kept of a server cannot be read: {fault.strerror}")
        return None

    def save(self, key: str, catalog: KeptCatalog) -> None:
        """Save a catalog under a key, atomically."""
        text = catalog.to_json().encode()
        if len(text) > MOST_BYTES:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.folder / ".lock", LOCK_PATIENCE):
                replace_file(self._path(key), text, durable=False)
                self._prune()
        except TimeoutError:
            _log.debug("%s: another process holds the lock; nothing was kept this time", self.folder)
        except OSError as fault:
            self._warn(key, f"{self.folder}: the lists of servers cannot be kept: {fault.strerror}")

    def _prune(self) -> None:
        files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[:-MOST_FILES]:
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _warn(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("%s", message)


def _check(status: os.stat_result) -> None:
    require_private(status)
    if status.st_size > MOST_BYTES:
        raise InvalidStateError(f"it has {status.st_size} bytes, more than {MOST_BYTES}")
