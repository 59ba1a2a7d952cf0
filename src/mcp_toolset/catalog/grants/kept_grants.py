"""`KeptGrants`: the store of a ledger, and how the host lists and revokes grants; base of `GrantLedger`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

from mcp_toolset.catalog.grants.cached_grants import AsyncGrantStore, AwaitedGrants, CachedGrants
from mcp_toolset.catalog.grants.store import GrantFilter, GrantRecord, GrantStore, MemoryGrantStore, key_of
from mcp_toolset.errors import DefinitionError, StateError

GrantEvent = Literal["issued", "refused", "used", "revoked"]
"""What happens to grants."""


class SteadyClock:
    """Seconds since the epoch that never run backwards, even if the machine's clock is set back."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._time, self._at = wall(), steady()

    def __call__(self) -> float:
        """The present time: the machine's, or the last reading plus the time since, if that is later."""
        at = self._steady()
        self._time = max(self._wall(), self._time + at - self._at)
        self._at = at
        return self._time


class GrantWatcher(Protocol):
    """A callable that is told what happens to grants, and must not wait."""

    def __call__(self, what: GrantEvent, /, **facts: Any) -> object:
        """Grants were issued, refused, used or revoked."""
        ...


class KeptGrants:
    """Grants in a synchronous store, or in an awaited store with a cache."""

    def __init__(self, store: GrantStore | AsyncGrantStore | CachedGrants | None) -> None:
        """Use `store`, or a store in memory."""
        store = MemoryGrantStore() if store is None else store
        if not isinstance(store, CachedGrants) and isinstance(store, AsyncGrantStore):
            store = CachedGrants(store)
        self._copy = store if isinstance(store, CachedGrants) else None
        self._near = None if isinstance(store, CachedGrants) else store
        self._far = store if isinstance(store, CachedGrants) else AwaitedGrants(store)
        self._listeners: dict[object, Callable[[], None]] = {}
        self._watchers: dict[object, GrantWatcher] = {}

    @property
    def ends_with_process(self) -> bool:
        """Whether the grants are in memory alone."""
        return isinstance(self._near, MemoryGrantStore)

    @property
    def _store(self) -> GrantStore:
        """The store, for synchronous methods."""
        if self._near is None:
            raise StateError(
                f"the grants of {self._far.name} are in an asynchronous store; use await revoke_async(…), "
                "revoke_all_async() and records_async()"
            )
        return self._near

    def records(self, *, principal: str | None = None, session: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, grants and refusals, the oldest first; of one owner if given."""
        return self._store.records(_owner(principal, session))

    def revoke(
        self,
        *,
        handle: str | None = None,
        principal: str | None = None,
        session: str | None = None,
        source: str | None = None,
        name: str | None = None,
    ) -> int:
        """Revoke every grant that matches all that is given; at once, also for calls that wait.

        Args:
            handle: The grant with this handle.
            principal: The grants of a principal.
            session: The grants of a session.
            source: The grants for the tools of a source; empty for local tools.
            name: The grants for a tool, by public name.

        Returns:
            The number of revoked grants.

        Raises:
            DefinitionError: nothing is given; use `revoke_all`.
            GrantStoreError: the store cannot be written.
        """
        return self._revoke(_meant(handle, principal, session, source, name))

    def revoke_all(self) -> int:
        """Revoke every grant; `GrantStoreError` if the store cannot be written."""
        return self._revoke(GrantFilter())

    async def records_async(
        self, *, principal: str | None = None, session: str | None = None
    ) -> list[GrantRecord]:
        """Like `records`, for every kind of store."""
        return await self._far.records(_owner(principal, session))

    async def revoke_async(
        self,
        *,
        handle: str | None = None,
        principal: str | None = None,
        session: str | None = None,
        source: str | None = None,
        name: str | None = None,
    ) -> int:
        """Like `revoke`, for every kind of store.

        In this process the revocation takes effect at once, even if the store fails. In another process with
        a cache it takes effect after `max_age`.

        Raises:
            DefinitionError: nothing is given.
            GrantStoreError: the store cannot be written; other processes may continue to use the grants.
        """
        return await self._revoked(_meant(handle, principal, session, source, name))

    async def revoke_all_async(self) -> int:
        """Like `revoke_all`, for every kind of store."""
        return await self._revoked(GrantFilter())

    def on_revoke(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when grants were revoked; return a function that stops this.

        What other processes revoke is told where the store tells of it.
        """
        key = object()
        self._listeners[key] = callback
        stop = None if self._copy is None else self._copy.on_heard(callback)

        def end() -> None:
            self._listeners.pop(key, None)
            if stop is not None:
                stop()

        return end

    def watch(self, watcher: GrantWatcher) -> Callable[[], None]:
        """Tell a watcher of each grant that is issued, refused, used or revoked; return what stops it."""
        key = object()
        self._watchers[key] = watcher

        def stop() -> None:
            self._watchers.pop(key, None)

        return stop

    def _tell(self, what: GrantEvent, **facts: Any) -> None:
        for watcher in list(self._watchers.values()):
            watcher(what, **facts)

    def _revoke(self, which: GrantFilter) -> int:
        return self._told(self._store.revoke(which), which)

    async def _revoked(self, which: GrantFilter) -> int:
        return self._told(await self._far.revoke(which), which)

    def _told(self, count: int, which: GrantFilter) -> int:
        """Notify the listeners that grants were revoked, if any were."""
        if count:
            self._tell(
                "revoked",
                count=count,
                grant=which.key,
                owner=which.owner,
                server=which.source,
                tool=which.name,
            )
            for callback in list(self._listeners.values()):
                callback()
        return count


def _meant(
    handle: str | None, principal: str | None, session: str | None, source: str | None, name: str | None
) -> GrantFilter:
    owner = _owner(principal, session)
    if (handle, owner, source, name) == (None,) * 4:
        raise DefinitionError("revoke() needs at least one argument; to revoke every grant, use revoke_all()")
    return GrantFilter(None if handle is None else key_of(handle), owner, source, name)


def _owner(principal: str | None, session: str | None) -> str | None:
    if principal is not None and session is not None:
        raise DefinitionError("a grant belongs to a principal or to a session; give one of them")
    if principal is not None:
        return f"principal:{principal}"
    return None if session is None else f"session:{session}"
