"""`VectorFile`: a cache of vectors by digest in an SQLite file, for the next start."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from mcp_toolset.catalog.sqlite_file import log_ahead
from mcp_toolset.errors import ToolsetError

_TABLE = "CREATE TABLE IF NOT EXISTS vectors (digest TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"


class VectorFile:
    """A `VectorCache` in a file that several processes may share. Close it when done."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            ToolsetError: It is not an SQLite file, or cannot be opened; it is unchanged.
        """
        self._lock = threading.Lock()
        try:
            self._base = _opened(path)
        except sqlite3.Error as fault:
            raise ToolsetError(f"{path} cannot hold vectors: {fault}; name another, or remove it") from None

    def get(self, digest: str) -> bytes | None:
        """The vector kept under a digest, if any."""
        with self._lock:
            row = self._base.execute("SELECT vector FROM vectors WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else row[0]

    def __setitem__(self, digest: str, vector: bytes) -> None:
        with self._lock:
            self._base.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (digest, vector))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()


def _opened(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
    try:
        log_ahead(base)
        base.execute(_TABLE)
    except sqlite3.Error:
        base.close()
        raise
    return base
