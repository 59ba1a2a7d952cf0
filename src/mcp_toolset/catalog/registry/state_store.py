"""`StateFile`: a registry's state on disk; `StateStore`: in a place that has to be waited for."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

import anyio.to_thread

from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.concurrency.atomic_file import locked, read_regular, replace_file
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, answer_of
from mcp_toolset.errors import InvalidStateError, StaleStateError, StoreError

LOCK_PATIENCE: Final = 5.0  # seconds that a save waits for another process


class StateFile:
    """A file with a `RegistryState`; one object for each writer."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen: RegistryState | None = None

    def load(self) -> RegistryState | None:
        self._seen = self._read()
        return self._seen

    def save(self, state: RegistryState) -> None:
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
            text = read_regular(self.path)
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


_T = TypeVar("_T")


@runtime_checkable
class StateStore(Protocol):
    """One text, such as a row of a table or an object in a bucket, with compare-and-swap.

    Attributes:
        name: The name of the store in errors and in the log.
    """

    name: str

    async def load(self) -> str | None:
        """The text; `None` before the first save."""
        ...

    async def save(self, text: str, before: str | None) -> bool:
        """Replace the text if it is still `before`; return whether it was."""
        ...


@runtime_checkable
class FollowedStore(StateStore, Protocol):
    """A store that tells when another process has saved."""

    def on_save(self, told: Callable[[], object]) -> Callable[[], None]:
        """Call `told` whenever something may have been saved; what is returned ends it."""
        ...


class StoredState:
    """The state in a file or in a `StateStore`; one object for each writer."""

    def __init__(self, place: str | os.PathLike[str] | StateStore, *, timeout: float = STORE_TIMEOUT) -> None:
        self._file = None if isinstance(place, StateStore) else StateFile(place)
        self._store = place if isinstance(place, StateStore) else None
        self._timeout = timeout
        self._seen: str | None = None
        self._unsure: str | None = None

    async def load(self) -> RegistryState | None:
        if self._file is not None:
            return await anyio.to_thread.run_sync(self._file.load)
        assert self._store is not None
        text = await self._asked(self._store.load(), "load the state")
        found = None if text is None else RegistryState.from_json(text, self._store.name)
        self._seen = text
        return found

    @property
    def followed(self) -> FollowedStore | None:
        return self._store if isinstance(self._store, FollowedStore) else None

    async def news(self) -> tuple[RegistryState | None, RegistryState] | None:
        """What this object saw last, and what another process has saved since; `None` if that is the same."""
        before = self._seen
        found = await self.load()
        if found is None or self._seen == before:
            return None
        return None if before is None else RegistryState.from_json(before), found

    async def save(self, state: RegistryState) -> None:
        if self._file is not None:
            await anyio.to_thread.run_sync(self._file.save, state)
            return
        assert self._store is not None
        text = state.to_json()
        if text == self._seen:
            return
        if not await self._swapped(self._store, text):
            raise StaleStateError(
                f"{self._store.name}: another process has saved another state; load it and decide again"
            )
        self._seen = text

    async def _swapped(self, store: StateStore, text: str) -> bool:
        """Replace the text; a save without an answer may have been done, and is then this object's own."""
        unsure, self._unsure = self._unsure, text
        done = await self._asked(store.save(text, self._seen), "save the state")
        if not done and unsure is not None and await self._asked(store.load(), "load the state") == unsure:
            done = await self._asked(store.save(text, unsure), "save the state")
        self._unsure = None
        return done

    async def _asked(self, asked: Awaitable[_T], to: str) -> _T:
        assert self._store is not None
        try:
            return await answer_of(self._store.name, asked, within=self._timeout, to=to)
        except StoreError as fault:
            raise InvalidStateError(str(fault)) from None
