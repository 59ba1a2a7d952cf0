"""`StateFile`: one registry's state on disk; several processes may share the file.

A save is a compare-and-swap under a lock file: it replaces the file atomically, and only if the file is still
what this process last read or wrote. A file that cannot be read is never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.concurrency.file_lock import locked
from mcp_toolset.errors import InvalidStateError, StaleStateError

LOCK_PATIENCE: Final = 5.0
"""Seconds that a save waits for another process."""


class StateFile:
    """A file with a `RegistryState`; one object for each writer."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use this file; nothing is read yet."""
        self.path = Path(path)
        self._seen: RegistryState | None = None

    def load(self) -> RegistryState | None:
        """The saved state, `None` if the file does not exist.

        Raises:
            InvalidStateError: the file is corrupt, foreign or unreadable; it is unchanged, and the message
                names it.
        """
        self._seen = self._read()
        return self._seen

    def save(self, state: RegistryState) -> None:
        """Save a state, atomically.

        Raises:
            StaleStateError: another writer has saved since this object last loaded or saved.
            InvalidStateError: the file is corrupt or foreign, or cannot be written.
        """
        with self._locked():
            saved = self._read()
            if saved != state:
                self._require_seen(saved)
                self._write(state)
            self._seen = state

    def _require_seen(self, saved: RegistryState | None) -> None:
        if saved != self._seen:
            found = "removed it" if saved is None else f"saved generation {saved.generation} here"
            known = "none" if self._seen is None else self._seen.generation
            raise StaleStateError(
                f"{self.path}: another process has {found}, after {known}; load it and decide again"
            )

    def _read(self) -> RegistryState | None:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise InvalidStateError(f"{self.path}: the state cannot be read: {fault.strerror}") from None
        return RegistryState.from_json(text, str(self.path))

    def _write(self, state: RegistryState) -> None:
        path = self.path.resolve()
        try:
            replace_file(path, state.to_json().encode())
        except OSError as fault:
            raise self._unwritable(fault) from None

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        path = self.path.resolve()
        if not path.parent.is_dir():
            # Taking the lock would create the folder, and a mistyped path would not be noticed.
            raise self._unwritable(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        try:
            lock = locked(path.with_name(f"{path.name}.lock"), LOCK_PATIENCE)
        except TimeoutError:
            raise InvalidStateError(
                f"{self.path}: the state cannot be written: another process has held its lock for "
                f"{LOCK_PATIENCE:g} s; end that process"
            ) from None
        except OSError as fault:
            raise self._unwritable(fault) from None
        with lock:
            yield

    def _unwritable(self, fault: OSError) -> InvalidStateError:
        return InvalidStateError(
            f"{self.path}: the state cannot be written: {fault.strerror}; choose a folder that is there "
            "and can be written to"
        )
