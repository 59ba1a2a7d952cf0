"""`AsyncGrantStore`: a store that must be awaited; `CachedGrants`: its cache, so that the gate need not wait.

Reading: an entry that is not older than `max_age` is used at once; any other is fetched before a call is
admitted. Writing goes through to the store and is awaited; the cache follows. So a grant that another process
has revoked is refused here after `max_age` seconds at the latest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar, runtime_checkable

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.grants.store import MAX_GRANTS, GrantFilter, GrantRecord, ToolGrant, Wire, key_of
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, SingleFlight, answer_of
from mcp_toolset.errors import DefinitionError, GrantStoreError
from mcp_toolset.tools.binding import StoreMiss


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


MAX_AGE: Final = 10.0
"""The default seconds for which a cached grant is used."""

ABSENT_AGE: Final = 1.0
"""The most seconds for which a missing grant, or one without uses left, is cached."""

_T = TypeVar("_T")
_NOTHING: Final[Wire] = {}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The store's answer for one reference; `ends` is on the monotonic clock."""

    grant: ToolGrant | None
    ends: float


class CachedGrants:
    """The grants of an awaited store, cached in this process."""

    def __init__(
        self,
        store: AsyncGrantStore,
        *,
        max_age: float = MAX_AGE,
        timeout: float = STORE_TIMEOUT,
        limit: int = MAX_GRANTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Cache `store`.

        Args:
            store: The store.
            max_age: Seconds for which an answer is used, from the moment of the request.
            timeout: Seconds that the store has for one answer; less than `max_age`.
            limit: The number of cached references; the oldest are dropped.
            clock: Seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive, or the timeout is not shorter than `max_age`.
        """
        if not (0 < timeout < max_age and limit > 0):
            raise DefinitionError(
                f"CachedGrants needs 0 < timeout < max_age and a positive limit, not {timeout:g} s, "
                f"{max_age:g} s and {limit}"
            )
        self.store = store
        self.max_age = max_age
        self._timeout = timeout
        self._limit = limit
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._held: OrderedDict[str, tuple[list[ToolGrant], float]] = OrderedDict()
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._definitions: OrderedDict[str, Wire] = OrderedDict()
        self._revocations = 0
        self._heard: dict[object, Callable[[], None]] = {}
        self._flights: SingleFlight[tuple[str, ...]] = SingleFlight()

    @property
    def name(self) -> str:
        """The name of the store in errors."""
        return self.store.name

    def find(self, owner: str, reference: str) -> ToolGrant | None:
        """The grant that a caller means by a handle or a public name.

        Raises:
            StoreMiss: it must be fetched first.
        """
        try:
            kept = self._kept[owner, reference]
        except KeyError:
            kept = None
        if kept is None or kept.ends <= self._clock():
            raise StoreMiss(partial(self._fetch, owner, reference))
        return kept.grant

    def held(self, owner: str) -> list[ToolGrant]:
        """The cached grants of an owner: for lists and hints, which allow nothing."""
        return self._held[owner][0] if owner in self._held else []

    def knows_held(self, owner: str) -> bool:
        """True if `held` is not too old."""
        return owner in self._held and self._held[owner][1] > self._clock()

    async def know_held(self, owner: str) -> None:
        """Fetch an owner's grants.

        Raises:
            GrantStoreError: the store cannot be reached; nothing has changed.
        """
        await self._flights.run(("held", owner), partial(self._fetch_held, owner))

    def definition(self, digest: str) -> Wire | None:
        """A definition that was granted.

        Raises:
            StoreMiss: it must be fetched first.
        """
        if digest not in self._definitions:
            raise StoreMiss(partial(self._fetch_definition, digest))
        return self._definitions[digest] or None

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Store outcomes; handles are cached at once, and names are fetched again."""
        began = self._clock()
        stands = await self._asked(self.store.save(records, definitions), "keep grants")
        for digest, wire in definitions.items():
            self._put_definition(digest, wire)
        stands = [self._current_record(record) for record in stands]
        for record in stands:
            self._held.pop(record.owner, None)
            if (grant := record.grant) is not None:
                self._kept.pop((record.owner, grant.name), None)
                if grant.handle:
                    kept = _Kept(grant, began + self.max_age)
                    _put(self._kept, (record.owner, grant.handle), kept, self._limit)
        return stands

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        found = await self._asked(self.store.recorded(owner, replay, id), "look up a replay")
        return None if found is None else self._current_record(found)

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        return [
            self._current_record(record)
            for record in await self._asked(self.store.records(owner), "list what came of resolving")
        ]

    async def take(self, key: str) -> bool:
        """Take one use; only the store decides, so that no use is taken twice."""
        return await self._asked(self.store.take(key), "count a use of a grant")

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        await self._asked(self.store.give_back(key), "return a use of a grant")

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants: in the cache first, so that they are refused here even if the store fails."""
        self._mark(which)
        try:
            return await self._asked(self.store.revoke(which), "take grants back")
        finally:
            # Answers that were fetched meanwhile may be older than the revocation.
            self._revocations += 1
            self._mark(which)

    def heard(self, which: GrantFilter) -> None:
        """Take in that another process has revoked grants."""
        self._mark(which)
        # Answers that are fetched meanwhile may be older than the revocation.
        self._revocations += 1
        for callback in list(self._heard.values()):
            callback()

    def on_heard(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when another process has revoked grants; return a function that stops this."""
        key = object()
        self._heard[key] = callback
        return lambda: self._heard.pop(key, None) and None

    def heard_of_grants(self, owner: str, names: Sequence[str]) -> None:
        """Take in that another process has granted tools to an owner, who may mean these from now on."""
        self._held.pop(owner, None)
        for name in names:
            self._kept.pop((owner, name), None)
        self._revocations += 1

    def doubt(self, max_age: float) -> None:
        """Ask the store again for every grant, and use its answers for `max_age` seconds from now on."""
        self.max_age = max_age
        self._revocations += 1
        self._kept.clear()
        self._held.clear()

    async def _fetch(self, owner: str, reference: str) -> None:
        await self._flights.run(("find", owner, reference), partial(self._fetch_grant, owner, reference))

    async def _fetch_grant(self, owner: str, reference: str) -> None:
        key = key_of(reference)
        while True:
            began, revocations = self._clock(), self._revocations
            asked = self.store.find(owner, key, reference)
            grant = await self._asked(asked, "look up a grant")
            if revocations == self._revocations:
                break
        if grant is not None:
            grant = self._current(grant)
        ends = began + self.max_age
        if grant is None or grant.uses == 0:
            # It allows nothing, so its age counts from now: the check that asked must find it.
            ends = self._clock() + min(ABSENT_AGE, self.max_age)
        _put(self._kept, (owner, reference), _Kept(grant, ends), self._limit)

    async def _fetch_held(self, owner: str) -> None:
        began = self._clock()
        grants = await self._asked(self.store.held(owner), "look up what a caller holds")
        _put(self._held, owner, ([self._current(one) for one in grants], began + self.max_age), self._limit)

    async def _fetch_definition(self, digest: str) -> None:
        wire = await self._asked(self.store.definition(digest), "look up a definition")
        self._put_definition(digest, wire or _NOTHING)

    def _put_definition(self, digest: str, wire: Wire) -> None:
        _put(self._definitions, digest, wire, self._limit)

    def _mark(self, which: GrantFilter) -> None:
        for kept in self._kept.values():
            if kept.grant is not None and which.fits(kept.grant):
                _put(self._revoked, kept.grant.key, None, self._limit)
        if which.key is not None and which == GrantFilter(which.key):
            _put(self._revoked, which.key, None, self._limit)
        for reference, kept in list(self._kept.items()):
            if kept.grant is not None and kept.grant.key in self._revoked:
                self._kept[reference] = replace(kept, grant=self._current(kept.grant))
        self._held.clear()

    def _current(self, grant: ToolGrant) -> ToolGrant:
        """A grant from the store; one that was revoked here stays so, whatever an older answer says."""
        if grant.revoked:
            _put(self._revoked, grant.key, None, self._limit)
        return replace(grant, revoked=True) if grant.key in self._revoked else grant

    def _current_record(self, record: GrantRecord) -> GrantRecord:
        return record if record.grant is None else replace(record, grant=self._current(record.grant))

    async def _asked(self, asked: Awaitable[_T], to: str) -> _T:
        return await answer_of(self.name, asked, within=self._timeout, to=to, error=GrantStoreError)


_K = TypeVar("_K")
_V = TypeVar("_V")


def _put(table: OrderedDict[_K, _V], key: _K, value: _V, limit: int) -> None:
    """Put an entry at the end, and drop the oldest if there are too many."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > limit:
        table.popitem(last=False)
