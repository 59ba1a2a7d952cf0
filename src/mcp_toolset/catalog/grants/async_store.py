"""`AsyncGrantStore`: the protocol of a grant store that must be awaited, such as a database on a network.

Each request is done as a whole or not at all, a use is taken once, and nothing is removed before it expires.
`CachedGrants` caches such a store in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import anyio.to_thread

from mcp_toolset.catalog.grants.store import GrantFilter, GrantRecord, GrantStore, ToolGrant, Wire

_T = TypeVar("_T")


@runtime_checkable
class AsyncGrantStore(Protocol):
    """Stores grants and the outcomes of resolving; every method is awaited.

    If a method raises, nothing was done: nothing is granted and nothing runs.

    Attributes:
        name: The name of the store in errors, which models read: no address and no password.
    """

    name: str

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes, all or none, and definitions by digest; return the records that stand.

        If a record of the same owner, replay key (unless that is empty) and id exists, it is kept and nothing
        is added. The handle of a grant without an owner must not be stored. A record must be kept until it
        `expires`, better twice as long, so that the owner can be told that the grant has ended.
        """
        ...

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        """The grant of a handle's hash, in any state; else the owner's newest for a public name.

        If `owner` is empty, names are not looked up.
        """
        ...

    async def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant of an owner for each name, in the order of the first."""
        ...

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key, with the present state of its grant."""
        ...

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first; of one owner if given."""
        ...

    async def definition(self, digest: str) -> Wire | None:
        """A definition that was granted, in wire form."""
        ...

    async def take(self, key: str) -> bool:
        """Take one use of an unrevoked grant; return whether one was left. Each use is taken once only."""
        ...

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        ...

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants; return how many were not revoked before."""
        ...


class AwaitedGrants:
    """A synchronous store as an awaited one: in a worker thread if its `waits` says so."""

    def __init__(self, store: GrantStore) -> None:
        """Use this store."""
        self.name = type(store).__name__
        self._store = store

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Store outcomes."""
        return await self._done(lambda: self._store.add(records, definitions))

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        return await self._done(lambda: self._store.recorded(owner, replay, id))

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving."""
        return await self._done(lambda: self._store.records(owner))

    async def take(self, key: str) -> bool:
        """Take one use."""
        return await self._done(lambda: self._store.take(key))

    async def give_back(self, key: str) -> None:
        """Return a use."""
        await self._done(lambda: self._store.give_back(key))

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants."""
        return await self._done(lambda: self._store.revoke(which))

    async def purge(self, before: float) -> int:
        """Remove what had expired by then."""
        return await self._done(lambda: self._store.purge(before))

    async def _done(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work) if self._store.waits else work()
