"""`AsyncGrantStore`: grants in a place that has to be waited for, such as a database on a network.

It promises what such a place can keep: each request is done as a whole or not at all, a use is taken once,
and nothing is forgotten before it expires. `CachedGrants` puts a copy in this process in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import anyio.to_thread

from mcp_toolset.catalog.grants.store import GrantFilter, GrantRecord, GrantStore, ToolGrant, Wire

_T = TypeVar("_T")


@runtime_checkable
class AsyncGrantStore(Protocol):
    """Where grants and what came of resolving are kept, if it has to be waited for.

    What a method raises means that nothing was done; nothing is granted and nothing runs then.

    Attributes:
        name: What the store is called in errors, which models read: no address and no password.
    """

    name: str

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes, all or none, and definitions by digest; return the records that stand.

        Where a record of the same owner, replay key (unless that is empty) and id is there already, that
        one stands and nothing is added. Of a grant without an owner the handle is not to be kept. A record
        is to be kept until it `expires`, better as long again, so that the owner can be told that it ended.
        """
        ...

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        """The grant of a handle's hash, in whatever state it is; else the owner's newest for a public name.

        If `owner` is empty, nobody owns a name.
        """
        ...

    async def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant of an owner for each name, in the order of the first."""
        ...

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """What came of an id under a replay key, with its grant as it is by now."""
        ...

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """What came of resolving, the oldest first; of everybody unless an owner is given."""
        ...

    async def definition(self, digest: str) -> Wire | None:
        """A definition that was granted, in wire form."""
        ...

    async def take(self, key: str) -> bool:
        """Use up one use of a grant that was not taken back; whether there was one. Nobody shares one."""
        ...

    async def give_back(self, key: str) -> None:
        """Return a use that came to nothing."""
        ...

    async def revoke(self, which: GrantFilter) -> int:
        """Take grants back; how many were not taken back before."""
        ...


class AwaitedGrants:
    """A synchronous store as one that is waited for: in a worker thread if it says that it may wait."""

    def __init__(self, store: GrantStore) -> None:
        """Ask this store."""
        self.name = type(store).__name__
        self._store = store

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes."""
        return await self._done(lambda: self._store.add(records, definitions))

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """What came of an id under a replay key."""
        return await self._done(lambda: self._store.recorded(owner, replay, id))

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """What came of resolving."""
        return await self._done(lambda: self._store.records(owner))

    async def take(self, key: str) -> bool:
        """Use up one use."""
        return await self._done(lambda: self._store.take(key))

    async def give_back(self, key: str) -> None:
        """Return a use."""
        await self._done(lambda: self._store.give_back(key))

    async def revoke(self, which: GrantFilter) -> int:
        """Take grants back."""
        return await self._done(lambda: self._store.revoke(which))

    async def purge(self, before: float) -> int:
        """Forget what had expired by then."""
        return await self._done(lambda: self._store.purge(before))

    async def _done(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work) if self._store.waits else work()
