"""`StateFile`: a registry's state on disk; `StoredState`: there, or in a `Store`."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Final, Self, TypeVar

import anyio.to_thread

from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.concurrency.atomic_file import locked, read_regular, replace_file
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, answer_of
from mcp_toolset.errors import InvalidStateError, StaleStateError, StoreError
from mcp_toolset.stores.store import ABSENT, Put, StorePlace, new_tag, path_of, store_at

LOCK_TIMEOUT: Final = 5.0  # seconds that a save waits for another process


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
            change = "removed it" if saved is None else f"saved generation {saved.generation} here"
            known = "none" if self._seen is None else self._seen.generation
            raise StaleStateError(
                f"{self.path}: another process has {change}, after {known}; load it and decide again"
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
            lock = locked(path.with_name(f"{path.name}.lock"), LOCK_TIMEOUT)
        except TimeoutError:
            raise InvalidStateError(
                f"{self.path}: the state cannot be written: another process has held its lock for "
                f"{LOCK_TIMEOUT:g} s; end that process"
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


_SHELF: Final = "registry"

_T = TypeVar("_T")


class StoredState:
    """The state in a file, or in an entry of a `Store`; one object for each writer."""

    def __init__(
        self,
        place: StorePlace,
        service: str,
        *,
        told: bytes = b"",
        follow: Callable[[Callable[[], object]], Callable[[], None]] | None = None,
        timeout: float = STORE_TIMEOUT,
    ) -> None:
        """Use a file of JSON, or a store.

        Args:
            place: The place of the store.
            service: The name of the server, unique within a store.
            told: The message to followers of the state about a save.
            follow: Has a function called whenever something may have been saved; what it returns ends that.
            timeout: Seconds that the store has for one answer.
        """
        path = path_of(place)
        self._file = None if path is None else StateFile(path)
        self._store = store_at(None if path else place, "the store of switched-on tools")
        self.follow = follow
        self._service = service
        self._told = told
        self._timeout = timeout
        self._seen: str | None = None
        self._tag = self._unsure = ABSENT

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self._store.__aexit__(None, None, None)

    async def load(self) -> RegistryState | None:
        if self._file is not None:
            return await anyio.to_thread.run_sync(self._file.load)
        [entry] = await self._asked(self._store.get((_SHELF, self._service)), "load the state")
        text, tag = (None, ABSENT) if entry is None else (entry.value.decode(errors="replace"), entry.tag)
        state = None if text is None else RegistryState.from_json(text, self._store.name)
        self._seen, self._tag = text, tag
        return state

    async def news(self) -> tuple[RegistryState | None, RegistryState] | None:
        """The state seen last, and what another process has saved since; `None` if that is the same."""
        before = self._seen
        state = await self.load()
        if state is None or self._seen == before:
            return None
        return None if before is None else RegistryState.from_json(before), state

    async def save(self, state: RegistryState) -> None:
        if self._file is not None:
            await anyio.to_thread.run_sync(self._file.save, state)
            return
        text, tag = state.to_json(), new_tag()
        if text == self._seen:
            return
        put = Put(_SHELF, self._service, text.encode(), self._tag, tag=tag)
        # A save without an answer may have been done, and is this object's own.
        unsure, self._unsure = self._unsure, tag
        standing = await self._asked(self._store.write(put, tell=self._told), "save the state")
        if standing is not None and unsure and standing[0] is not None and standing[0].tag == unsure:
            again = self._store.write(put._replace(known=unsure), tell=self._told)
            standing = await self._asked(again, "save the state")
        self._unsure = ABSENT
        if standing is not None:
            raise StaleStateError(
                f"{self._store.name}: another process has saved another state; load it and decide again"
            )
        self._seen, self._tag = text, tag

    async def _asked(self, asked: Awaitable[_T], to: str) -> _T:
        try:
            return await answer_of(self._store.name, asked, within=self._timeout, to=to)
        except StoreError as fault:
            raise InvalidStateError(str(fault)) from None
