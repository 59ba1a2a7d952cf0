"""`SuspendedFile`: a `SuspendedStore` in one SQLite file, for a server that is started again."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Final, TypeVar

from mcp_toolset._records import dataclass
from mcp_toolset.calls.suspended import PATIENCE
from mcp_toolset.concurrency.sqlite_file import SqliteFile
from mcp_toolset.concurrency.sqlite_thread import SqliteStore
from mcp_toolset.security.secrets.key_ring import KEY_BYTES, KeyRing

_TABLES: Final = """CREATE TABLE IF NOT EXISTS kept (
    kind TEXT NOT NULL, name TEXT NOT NULL, data BLOB, until REAL NOT NULL, PRIMARY KEY (kind, name)
)"""
_FILE: Final = SqliteFile(b"MTsu", (_TABLES,))
_PUT: Final = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)"
_ADD: Final = "INSERT OR IGNORE INTO kept VALUES (?, ?, ?, ?)"
_GET: Final = "SELECT data FROM kept WHERE kind = ? AND name = ? AND until > ?"
_TAKE: Final = "DELETE FROM kept WHERE kind = ? AND name = ? AND until > ? RETURNING data"
_FORGET: Final = "DELETE FROM kept WHERE until <= ?"
_FOR_EVER: Final = 1e18

_T = TypeVar("_T")


class SuspendedFile:
    """Suspended calls in one file, readable by its owner only; processes of one machine may share it.

    Attributes:
        keys: Seals the calls; known while the file is open.
        patience: Seconds for which a call that waits for an answer is kept.
    """

    keys: KeyRing

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        keys: KeyRing | None = None,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use a file, which is made when it is opened.

        Args:
            path: The file; the user's own unless given.
            keys: Seals the calls. Unless given, one key is made and kept in the file.
            patience: Seconds for which a call that waits for an answer is kept.
            now: Seconds since the epoch.
        """
        self.path = suspended_path() if path is None else Path(path)
        self._file = SqliteStore(self.path, _FILE, "the file of suspended calls")
        self.patience = patience
        self._given = keys
        self._now = now

    def used(self, kind: str) -> _Names:
        """Names that may be used once."""
        return _Names(self, f"used {kind}")

    def kept(self, kind: str) -> _Names:
        """Data that is put aside."""
        return _Names(self, f"kept {kind}")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the file for the length of a block; several users of one object may do so.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        async with self._file:
            kept = await self.do(self._key)
            self.keys = self._given or KeyRing((kept,))
            yield

    async def do(self, work: Callable[[sqlite3.Connection, float], _T]) -> _T:
        """The result of one step, which is on disk then; the step is given the time.

        Raises:
            StoreError: the file cannot be read or written.
        """
        now = self._now()
        return await self._file.do(lambda file: work(file, now))

    def _key(self, file: sqlite3.Connection, now: float) -> bytes:
        file.execute(_FORGET, (now,))
        if self._given is not None:
            return b""
        file.execute(_ADD, ("key", "", token_bytes(KEY_BYTES), _FOR_EVER))
        return file.execute(_GET, ("key", "", now)).fetchone()[0]


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of one kind, with data or without; see `Once` and `Kept`."""

    file: SuspendedFile
    kind: str

    async def use(self, name: str, *, seconds: float) -> bool:
        """Use a name; `False` if it was used in the last `seconds`."""

        def add(file: sqlite3.Connection, now: float) -> bool:
            file.execute(_FORGET, (now,))
            return file.execute(_ADD, (self.kind, name, None, now + seconds)).rowcount > 0

        return await self.file.do(add)

    async def was_used(self, name: str) -> bool:
        return await self._found(_GET, name) is not None

    async def free(self, name: str) -> None:
        """Let a name be used again."""
        await self._found(_TAKE, name)

    async def put(self, name: str, data: bytes, *, seconds: float) -> None:
        def put(file: sqlite3.Connection, now: float) -> None:
            file.execute(_FORGET, (now,))
            file.execute(_PUT, (self.kind, name, data, now + seconds))

        await self.file.do(put)

    async def get(self, name: str) -> bytes | None:
        """Data that stays where it is; `None` if there is none."""
        found = await self._found(_GET, name)
        return None if found is None else found[0]

    async def take(self, name: str) -> bytes | None:
        """Take data, which nothing else takes then; `None` if there is none."""
        found = await self._found(_TAKE, name)
        return None if found is None else found[0]

    async def _found(self, query: str, name: str) -> tuple[bytes] | None:
        return await self.file.do(lambda file, now: file.execute(query, (self.kind, name, now)).fetchone())


def suspended_path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "suspended.sqlite3"
