"""`SuspendedFile`: a `SuspendedStore` in one SQLite file, for a server that is started again."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_toolset.calls.suspended import PATIENCE, StoredNames, kept_keys
from mcp_toolset.security.secrets.key_ring import KeyRing
from mcp_toolset.stores.places import store_at


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
        self._store = store_at(self.path, "the file of suspended calls", now=now)
        self.patience = patience
        self._given = keys

    def used(self, kind: str) -> StoredNames:
        """Names that may be used once."""
        return StoredNames(self._store, f"used {kind}")

    def kept(self, kind: str) -> StoredNames:
        """Data that is put aside."""
        return StoredNames(self._store, f"kept {kind}")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the file for the length of a block; several users of one object may do so.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        async with self._store:
            self.keys = self._given or await kept_keys(self._store)
            yield


def suspended_path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "suspended.sqlite3"
