"""`CachedGrants`: a copy of the grants of a store that must be awaited, so that the gate need not wait.

Reading: an entry that is not older than `ttl` is used at once; any other is fetched before a call is
admitted. Writing goes through to the store and is awaited; the copy follows. So a grant that another process
has revoked is refused here after `ttl` seconds at the latest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._records import replace
from mcp_toolset.catalog.grants.store import (
    MAX_GRANTS,
    GrantFilter,
    GrantRecord,
    StoredGrants,
    ToolGrant,
    Wire,
    key_of,
)
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, SingleFlight, answer_of
from mcp_toolset.errors import GrantStoreError
from mcp_toolset.stores.store import Store
from mcp_toolset.tools.binding import StoreMiss

ABSENT_TTL: Final = 1.0
"""Seconds for which a missing grant, or one without uses left, is cached."""

_T = TypeVar("_T")
_NOTHING: Final[Wire] = {}


class CachedGrants:
    """The grants of an awaited store, and a copy of the newest answers in this process."""

    def __init__(
        self, stored: StoredGrants, *, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use each answer of the store for `ttl` seconds of `clock`, counted from the request."""
        self.stored = stored
        self.ttl = ttl
        self._clock = clock
        # The store's answer for each owner and reference, and when it is too old.
        self._kept: OrderedDict[tuple[str, str], tuple[ToolGrant | None, float]] = OrderedDict()
        self._held: OrderedDict[str, tuple[list[ToolGrant], float]] = OrderedDict()
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._definitions: OrderedDict[str, Wire] = OrderedDict()
        self._revocations = 0
        self.revoked_elsewhere = Callbacks()  # told when another process has revoked grants
        self._flights: SingleFlight[tuple[str, ...]] = SingleFlight()

    @property
    def store(self) -> Store:
        return self.stored.store

    def find(self, owner: str, reference: str) -> ToolGrant | None:
        """The grant that a caller means by a grant string or a public name.

        Raises:
            StoreMiss: it must be fetched first.
        """
        kept = self._kept.get((owner, reference))
        if kept is None or kept[1] <= self._clock():
            raise StoreMiss(partial(self._fetch, owner, reference))
        return kept[0]

    def held(self, owner: str) -> list[ToolGrant]:
        """The cached grants of an owner: for lists and hints, which allow nothing."""
        return self._held[owner][0] if owner in self._held else []

    def knows_held(self, owner: str) -> bool:
        """True if `held` is younger than `ttl`."""
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
        """Store outcomes; grant strings are cached at once, and names are fetched again."""
        began = self._clock()
        stands = await self._asked(self.stored.save(records, definitions), "keep grants")
        for digest, wire in definitions.items():
            _put(self._definitions, digest, wire)
        stands = [self._current_record(record) for record in stands]
        for record in stands:
            self._held.pop(record.owner, None)
            if (grant := record.grant) is not None:
                self._kept.pop((record.owner, grant.name), None)
                if grant.grant:
                    _put(self._kept, (record.owner, grant.grant), (grant, began + self.ttl))
        return stands

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        record = await self._asked(self.stored.recorded(owner, replay, id), "look up a replay")
        return None if record is None else self._current_record(record)

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        return [
            self._current_record(record)
            for record in await self._asked(self.stored.records(owner), "list the outcomes of resolving")
        ]

    async def take(self, key: str) -> bool:
        """Take one use; only the store decides, so that no use is taken twice."""
        return await self._asked(self.stored.take(key), "count a use of a grant")

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        await self._asked(self.stored.give_back(key), "return a use of a grant")

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants: in the cache first, so that they are refused here even if the store fails."""
        self._mark(which)
        try:
            return await self._asked(self.stored.revoke(which), "take grants back")
        finally:
            # Answers that were fetched meanwhile may be older than the revocation.
            self._revocations += 1
            self._mark(which)

    def heard(self, which: GrantFilter) -> None:
        """Apply a revocation of another process."""
        self._mark(which)
        # Answers that are fetched meanwhile may be older than the revocation.
        self._revocations += 1
        self.revoked_elsewhere.tell()

    def heard_of_grants(self, owner: str, names: Sequence[str]) -> None:
        """Fetch an owner's grants anew, as another process has granted more tools."""
        self._held.pop(owner, None)
        for name in names:
            self._kept.pop((owner, name), None)
        self._revocations += 1

    def doubt(self, ttl: float) -> None:
        """Ask the store again for every grant, and use its answers for `ttl` seconds from now on."""
        self.ttl = ttl
        self._revocations += 1
        self._kept.clear()
        self._held.clear()

    async def _fetch(self, owner: str, reference: str) -> None:
        await self._flights.run(("find", owner, reference), partial(self._fetch_grant, owner, reference))

    async def _fetch_grant(self, owner: str, reference: str) -> None:
        key = key_of(reference)
        while True:
            began, revocations = self._clock(), self._revocations
            asked = self.stored.find(owner, key, reference)
            grant = await self._asked(asked, "look up a grant")
            if revocations == self._revocations:
                break
        if grant is not None:
            grant = self._current(grant)
        ends = began + self.ttl
        if grant is None or grant.uses == 0:
            # It allows nothing, so its age counts from now: the check that asked must find it.
            ends = self._clock() + min(ABSENT_TTL, self.ttl)
        _put(self._kept, (owner, reference), (grant, ends))

    async def _fetch_held(self, owner: str) -> None:
        began = self._clock()
        grants = await self._asked(self.stored.held(owner), "look up what a caller holds")
        _put(self._held, owner, ([self._current(grant) for grant in grants], began + self.ttl))

    async def _fetch_definition(self, digest: str) -> None:
        wire = await self._asked(self.stored.definition(digest), "look up a definition")
        _put(self._definitions, digest, wire or _NOTHING)

    def _mark(self, which: GrantFilter) -> None:
        for grant, _ in self._kept.values():
            if grant is not None and which.fits(grant):
                _put(self._revoked, grant.key, None)
        if which.key is not None and which == GrantFilter(which.key):
            _put(self._revoked, which.key, None)
        for reference, (grant, ends) in list(self._kept.items()):
            if grant is not None and grant.key in self._revoked:
                self._kept[reference] = self._current(grant), ends
        self._held.clear()

    def _current(self, grant: ToolGrant) -> ToolGrant:
        """A grant from the store; it stays revoked if it was revoked here, even if an answer is older."""
        if grant.revoked:
            _put(self._revoked, grant.key, None)
        return replace(grant, revoked=True) if grant.key in self._revoked else grant

    def _current_record(self, record: GrantRecord) -> GrantRecord:
        return record if record.grant is None else replace(record, grant=self._current(record.grant))

    async def _asked(self, asked: Awaitable[_T], to: str) -> _T:
        return await answer_of(self.store.name, asked, within=STORE_TIMEOUT, to=to, error=GrantStoreError)


_K = TypeVar("_K")
_V = TypeVar("_V")


def _put(table: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """Put an entry at the end, and remove the oldest if there are too many."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > MAX_GRANTS:
        table.popitem(last=False)
