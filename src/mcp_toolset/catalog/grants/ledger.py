"""`GrantLedger`: issues grants and decides alone whether a deferred tool may run.

A grant is bound to its owner, to the source, the server behind it, the tool and the digest of its
definition, and it expires. Its grant string contains the tool's name, so that a model copies it without
error, and 96 random bits, so that it cannot be guessed. A caller who is not the owner learns nothing;
the owner is told why a grant is refused, and what has changed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast
from weakref import WeakSet, finalize

import anyio.to_thread

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import replace
from mcp_toolset.catalog.grants.store import (
    MAX_GRANTS,
    MAX_KEPT,
    GrantFilter,
    GrantRecord,
    StoredGrants,
    ToolGrant,
    Wire,
    key_of,
)
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT
from mcp_toolset.errors import DefinitionError, GrantError, GrantStoreError, StateError, StoreError
from mcp_toolset.stores.store import MemoryStore, Store, at_once, is_url, store_at
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import difference
from mcp_toolset.tools.result import REPLAY_META_KEY, encodable
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.catalog.grants.cached_grants import CachedGrants

_T = TypeVar("_T")

GrantEvent = Literal["issued", "refused", "used", "revoked"]
"""Events of grants."""


def steady_clock(
    wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
) -> Callable[[], float]:
    """A clock of seconds since the epoch that never runs backwards, even if the machine's is set back.

    Its time is the machine's, or the last reading plus the time since, if that is later.
    """
    last, at = wall(), steady()

    def now() -> float:
        nonlocal last, at
        before, at = at, steady()
        last = max(wall(), last + at - before)
        return last

    return now


GrantWatcher = Callable[..., object]
"""Called with each `GrantEvent` and its facts by keyword; must not wait."""

OWNED_TTL: Final = 3600.0
"""The lifetime in seconds of a grant that is bound to a session or a principal."""

BEARER_TTL: Final = 900.0
"""The lifetime in seconds of a bearer grant, which only its string protects."""

CACHE_TTL: Final = 10.0
"""The seconds for which a grant of a URL or a `Store` is used without asking again."""

SKEW: Final = 5.0
"""Seconds by which the clocks of processes that share a store may differ."""

LONGEST_REFERENCE: Final = 400
"""The largest length of a grant string and of a replay key."""

_AGAIN: Final = "search for it and resolve it again"


def owner_of(context: ToolContext) -> str:
    """The owner of a caller's grants: principal, else session, else empty (a bearer grant)."""
    if context.principal:
        return f"principal:{context.principal}"
    return f"session:{context.session}" if context.session else ""


def replay_key(context: ToolContext) -> str:
    """The replay key in a request's `_meta`; empty without one, or without an owner.

    Callers who cannot be told apart have no replay key: one could get the grants of another.
    """
    key: object = context.meta.get(REPLAY_META_KEY)
    usable = isinstance(key, str) and 0 < len(key) <= LONGEST_REFERENCE and bool(owner_of(context))
    return encodable(str(key)) if usable else ""


class GrantLedger:
    """Issues, checks and revokes grants. One with a file is closed, or used in a `with` block."""

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | CachedGrants | None = None,
        *,
        ttl: float = OWNED_TTL,
        bearer_ttl: float = BEARER_TTL,
        bearer_uses: int | None = None,
        cache_ttl: float = CACHE_TTL,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Keep grants in `store`, by default in memory.

        Args:
            store: The path of a file, readable by its user only, which several processes may share; a URL,
                such as `redis://host`; or a `Store`. A server opens the store while it is open.
            ttl: The lifetime in seconds of grants of a session or a principal.
            bearer_ttl: The lifetime in seconds of bearer grants.
            bearer_uses: The number of uses of a bearer grant; by default unlimited.
            cache_ttl: Seconds for which a grant of a URL or a `Store` is used without asking again: so long a
                revocation of another process may go unnoticed.
            clock: The time in seconds since the epoch; it must not run backwards.

        Raises:
            DefinitionError: a number is not positive, or `cache_ttl` is not longer than a store has to
                answer.
            ConfigError: there is no such kind of URL, or an extra is not installed.
            GrantStoreError: the file cannot be opened, is damaged, of another program, or of a later
                version of this one. It is unchanged.
        """
        optional = {"bearer_uses": bearer_uses}
        require_positive("GrantLedger", optional, ttl=ttl, bearer_ttl=bearer_ttl, cache_ttl=cache_ttl)
        if not cache_ttl > STORE_TIMEOUT:
            raise DefinitionError(
                f"GrantLedger needs a cache_ttl of more than {STORE_TIMEOUT:g} s, in which a store answers, "
                f"not {cache_ttl:g} s"
            )
        self._ttl = ttl
        self._bearer_ttl = bearer_ttl
        self._bearer_uses = bearer_uses
        self._now = clock or steady_clock()
        self._issued: OrderedDict[str, int] = OrderedDict()
        self._listeners = Callbacks()
        self.watchers = Callbacks()
        self._beside: WeakSet[GrantLedger] = WeakSet()
        self._known_as: Callable[[str], str] = str
        self._near: StoredGrants | None = None  # in memory or in a file; `None` with an awaited store
        self._copy: CachedGrants | None = None  # the cache of an awaited store
        self._close: Callable[[], object] | None = None
        if store is None:
            self._near = self._far = StoredGrants(MemoryStore(clock or time.time), limit=MAX_GRANTS)
        elif isinstance(store, str | os.PathLike) and not is_url(store):
            self._near = self._far = StoredGrants(self._file(Path(store), clock or time.time), limit=MAX_KEPT)
        else:
            self._copy = self._far = _copied(store, cache_ttl)
        self.store = self._far.store  # to be open while the ledger is used

    def beside(self, known_as: Callable[[str], str]) -> GrantLedger:
        """A ledger in memory with the same lifetimes, for a view of the tools.

        The watchers of this one are told of its events, and what is revoked here is revoked there.

        Args:
            known_as: The name in the view of a tool, by the name here.
        """
        made = GrantLedger(
            ttl=self._ttl, bearer_ttl=self._bearer_ttl, bearer_uses=self._bearer_uses, clock=self._now
        )
        made.watchers, made._known_as = self.watchers, known_as
        self._beside.add(made)
        return made

    def _file(self, path: Path, clock: Callable[[], float]) -> Store:
        from mcp_toolset.stores.sqlite import DirectFile

        try:
            file = DirectFile(path, "the grants", clock)
        except StoreError as fault:
            raise GrantStoreError(str(fault)) from fault
        self._close = finalize(self, file.close)
        return file

    def close(self) -> None:
        """Close the file, if there is one; later calls raise `GrantStoreError`."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def ends_with_process(self) -> bool:
        """True if the grants are in memory alone."""
        return isinstance(self.store, MemoryStore)

    @property
    def _grants(self) -> StoredGrants:
        """The grants, for methods that are not awaited."""
        if self._near is None:
            raise StateError(
                f"the grants are in {self.store.name}, which must be awaited; use await revoke_async(…), "
                "revoke_all_async() or records_async()"
            )
        return self._near

    async def _done(self, step: Coroutine[Any, Any, _T]) -> _T:
        """Await a step of `_far`; if the grants are in a file, in a worker thread."""
        if self._near is None:
            return await step
        if self._close is None:
            return _now(step)
        try:
            # It waits for the disk, or for another process.
            return await anyio.to_thread.run_sync(_now, step)
        finally:
            step.close()

    def records(self, *, principal: str | None = None, session: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, grants and refusals, the oldest first; of one owner if given."""
        return _now(self._grants.records(_owner(principal, session)))

    def revoke(
        self,
        *,
        grant: str | None = None,
        principal: str | None = None,
        session: str | None = None,
        source: str | None = None,
        name: str | None = None,
    ) -> int:
        """Revoke every grant that matches all that is given; at once, also for calls that wait.

        Args:
            grant: The grant with this grant string.
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
        return self._revoke(_filter_of(grant, principal, session, source, name))

    def revoke_all(self) -> int:
        """Revoke every grant; `GrantStoreError` if the store cannot be written."""
        return self._revoke(GrantFilter())

    async def records_async(
        self, *, principal: str | None = None, session: str | None = None
    ) -> list[GrantRecord]:
        """Like `records`, for every kind of store."""
        return await self._done(self._far.records(_owner(principal, session)))

    async def revoke_async(
        self,
        *,
        grant: str | None = None,
        principal: str | None = None,
        session: str | None = None,
        source: str | None = None,
        name: str | None = None,
    ) -> int:
        """Like `revoke`, for every kind of store.

        In this process the revocation takes effect at once, even if the store fails. In another process with
        a cache it takes effect after `cache_ttl`.

        Raises:
            DefinitionError: nothing is given.
            GrantStoreError: the store cannot be written; other processes may continue to use the grants.
        """
        return await self._revoked(_filter_of(grant, principal, session, source, name))

    async def revoke_all_async(self) -> int:
        """Like `revoke_all`, for every kind of store."""
        return await self._revoked(GrantFilter())

    def on_revoke(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when grants were revoked; return a function that stops this.

        A revocation of another process counts too, if the store notifies this one.
        """
        stops = [self._listeners.add(callback)]
        if self._copy is not None:
            stops.append(self._copy.revoked_elsewhere.add(callback))

        def end() -> None:
            for stop in stops:
                stop()

        return end

    def _revoke(self, which: GrantFilter) -> int:
        others = self._revoke_beside(which)
        return others + self._notify_revoked(_now(self._grants.revoke(which)), which)

    async def _revoked(self, which: GrantFilter) -> int:
        others = self._revoke_beside(which)
        return others + self._notify_revoked(await self._done(self._far.revoke(which)), which)

    def _revoke_beside(self, which: GrantFilter) -> int:
        return sum(one._revoke(one._renamed(which)) for one in tuple(self._beside))

    def _renamed(self, which: GrantFilter) -> GrantFilter:
        return which if which.name is None else replace(which, name=self._known_as(which.name))

    def _notify_revoked(self, count: int, which: GrantFilter) -> int:
        """Notify the listeners that grants were revoked, if any were."""
        if count:
            self.watchers.tell(
                "revoked",
                count=count,
                grant=which.key,
                owner=which.owner,
                server=which.source,
                tool=which.name,
            )
            self._listeners.tell()
        return count

    def lengthen(self, ttl: float) -> None:
        """Give grants that are issued from now on a lifetime of `ttl` seconds at least."""
        self._ttl = max(self._ttl, ttl)
        self._bearer_ttl = max(self._bearer_ttl, ttl)

    def issue(self, binding: ToolBinding, context: ToolContext) -> ToolGrant:
        """Grant a tool to a caller; `GrantStoreError` if the grant cannot be stored."""
        grant = self.resolved([(binding.name, binding)], context)[0].grant
        assert grant is not None
        return grant

    def resolved(
        self, asked: Sequence[tuple[str, ToolBinding | str]], context: ToolContext, replay: str = ""
    ) -> list[GrantRecord]:
        """Store the outcome of each id: a grant for a binding, a refusal for a reason.

        Under a replay key an id keeps its first outcome, even if another one is requested now.

        Raises:
            GrantStoreError: nothing could be stored; nothing is granted.
        """
        now = self._now()
        stands = _now(self._grants.save(*self._outcomes(asked, context, replay, now)))
        self._note_outcomes(owner_of(context), stands)
        return stands

    async def resolve(
        self, asked: Sequence[tuple[str, ToolBinding | str]], context: ToolContext, replay: str = ""
    ) -> list[GrantRecord]:
        """Like `resolved`, with a store that must be awaited.

        Raises:
            GrantStoreError: nothing could be stored; nothing is granted.
        """
        now = self._now()
        stands = await self._done(self._far.save(*self._outcomes(asked, context, replay, now)))
        self._note_outcomes(owner_of(context), stands)
        return stands

    def _outcomes(
        self, asked: Sequence[tuple[str, ToolBinding | str]], context: ToolContext, replay: str, now: float
    ) -> tuple[list[GrantRecord], dict[str, Wire]]:
        """An outcome for each id, and the granted definitions, to be stored."""
        owner = owner_of(context)
        records = [
            GrantRecord(owner, replay, encodable(id), now, now + self._ttl, reason=found)
            if isinstance(found, str)
            else self._record(found, id, owner, replay, now)
            for id, found in asked
        ]
        return records, {
            found.definition.digest: found.definition.to_wire()
            for _, found in asked
            if not isinstance(found, str)
        }

    def recorded(self, id: str, context: ToolContext, replay: str) -> GrantRecord | None:
        """The outcome of an id under the caller's replay key."""
        if not replay:
            return None
        return _now(self._grants.recorded(owner_of(context), replay, encodable(id)))

    async def recall(self, id: str, context: ToolContext, replay: str) -> GrantRecord | None:
        """Like `recorded`, with a store that must be awaited."""
        if not replay:
            return None
        return await self._done(self._far.recorded(owner_of(context), replay, encodable(id)))

    def find(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The grant of a grant string, or of a public name in the caller's session.

        Raises:
            GrantStoreError: the store cannot be read.
            StoreMiss: the store must be awaited, and the grant is not cached.
        """
        if len(reference) > LONGEST_REFERENCE or encodable(reference) != reference:
            return None
        owner = owner_of(context)
        near = self._near
        if near is None:
            assert self._copy is not None
            grant = self._copy.find(owner, reference)
        else:
            grant = _now(near.get(key_of(reference)))
            if grant is None and owner:
                grant = _now(near.latest(owner, reference))
        if grant is None or grant.owner != owner:
            return None
        return grant if grant.grant else replace(grant, grant=reference)

    def check(self, grant: ToolGrant, binding: ToolBinding | None) -> None:
        """Refuse a grant that is no longer valid; the message is for its owner only.

        Raises:
            GrantError: it was revoked, expired or used up, its tool no longer exists, or the definition or
                the server has changed.
            StoreMiss: the tool's schemas must be fetched first.
        """
        fault = self.lapsed(grant) or self.moved(grant, binding)
        if fault:
            raise GrantError(f"{fault}; {_AGAIN}")

    def lapsed(self, grant: ToolGrant) -> str:
        """The reason why a grant is no longer valid; empty if it is valid."""
        now = self._now()
        if grant.revoked:
            return f"the grant for {grant.name} was taken back"
        if now >= grant.expires or grant.issued > now + SKEW:
            return f"the grant for {grant.name} has expired"
        return f"the grant for {grant.name} is used up" if grant.uses == 0 else ""

    def moved(self, grant: ToolGrant, binding: ToolBinding | None) -> str:
        """The changes since the grant was issued; empty if nothing has changed.

        Raises:
            StoreMiss: the tool's schemas must be fetched first.
        """
        if binding is None:
            return f"{grant.name} is no longer in the catalog"
        if (binding.source, binding.own_id) != (grant.source, grant.tool):
            return f"{grant.name} now belongs to another server or tool than the one granted"
        endpoint, listed = _provenance_of(binding)
        if endpoint != grant.endpoint:
            return f"{grant.name} now comes from another server than the one granted"
        binding = binding.contracted()
        if binding.definition.digest != grant.digest:
            return (
                f"the definition of {grant.name} has changed since it was granted{self._how(grant, binding)}"
            )
        if listed != grant.listed:
            return f"the definition of {grant.name} has just changed at its server"
        return ""

    def use(self, grant: ToolGrant) -> bool:
        """Take one use of a grant with limited uses; return whether one was left."""
        return grant.uses is None or _now(self._grants.take(grant.key))

    async def spend(self, grant: ToolGrant) -> bool:
        """Like `use`, with a store that must be awaited; processes that share the store share the uses."""
        return grant.uses is None or await self._done(self._far.take(grant.key))

    async def refund(self, grant: ToolGrant) -> None:
        """Return a use of a call that did not run, with an awaited store."""
        if grant.uses is not None:
            with anyio.CancelScope(shield=True):
                await self._done(self._far.give_back(grant.key))

    def remaining(self, grant: ToolGrant) -> int:
        """The remaining lifetime of a grant in seconds."""
        return max(0, int(grant.expires - self._now()))

    def give_back(self, grant: ToolGrant) -> None:
        """Return a use of a call that did not run."""
        if grant.uses is not None:
            _now(self._grants.give_back(grant.key))

    def held(self, context: ToolContext) -> list[ToolGrant]:
        """The caller's newest valid grant for each name; none without a session or principal."""
        owner = owner_of(context)
        if not owner:
            return []
        held = _now(self._grants.held(owner)) if self._copy is None else self._copy.held(owner)
        return [grant for grant in held if not self.lapsed(grant)]

    def knows_held(self, context: ToolContext) -> bool:
        """True if `held` is complete, so that nothing must be fetched."""
        return self._copy is None or not (owner := owner_of(context)) or self._copy.knows_held(owner)

    async def know_held(self, context: ToolContext) -> None:
        """Fetch the caller's grants; if the store cannot be reached, the cached ones stay."""
        if self._copy is not None and not self.knows_held(context):
            with suppress(GrantStoreError):
                await self._copy.know_held(owner_of(context))

    def names(self, context: ToolContext) -> list[str]:
        """The public names of the caller's valid grants; empty without a session or principal."""
        return [grant.name for grant in self.held(context)]

    def issued_to(self, context: ToolContext) -> int:
        """The number of grants that this process has issued to the caller's session or principal."""
        return self._issued.get(owner_of(context), 0)

    def _record(self, binding: ToolBinding, id: str, owner: str, replay: str, now: float) -> GrantRecord:
        expires = now + (self._ttl if owner else self._bearer_ttl)
        text = f"{binding.name}.{secrets.token_urlsafe(12)}"
        endpoint, listed = _provenance_of(binding)
        grant = ToolGrant(
            grant=text,
            name=binding.name,
            source=binding.source,
            tool=binding.own_id,
            digest=binding.definition.digest,
            owner=owner,
            expires=expires,
            endpoint=endpoint,
            listed=listed,
            issued=now,
            uses=None if owner else self._bearer_uses,
            key=key_of(text),
        )
        return GrantRecord(owner, replay, id, now, expires, grant)

    def _how(self, grant: ToolGrant, binding: ToolBinding) -> str:
        copy = self._copy
        old = _now(self._grants.definition(grant.digest)) if copy is None else copy.definition(grant.digest)
        lines = [] if old is None else difference(old, binding.definition.to_wire())
        return f" ({'; '.join(lines)})" if lines else ""

    def _note_outcomes(self, owner: str, stands: Sequence[GrantRecord]) -> None:
        """Tell the watchers which tools were granted and refused, and count the grants of an owner."""
        for record in stands if self.watchers else ():
            if (grant := record.grant) is None:
                self.watchers.tell("refused", owner=record.owner, tool=record.id, reason=record.reason)
            else:
                self.watchers.tell("issued", **_facts(grant), expires=grant.expires)
        grants = sum(record.grant is not None for record in stands)
        if owner and grants:
            self._issued[owner] = self._issued.pop(owner, 0) + grants
            if len(self._issued) > MAX_GRANTS:
                self._issued.popitem(last=False)

    def used(self, grant: ToolGrant) -> None:
        """Tell the watchers that a call runs with a grant."""
        if self.watchers:
            self.watchers.tell("used", **_facts(grant))


def _copied(store: str | os.PathLike[str] | Store | CachedGrants, cache_ttl: float) -> CachedGrants:
    from mcp_toolset.catalog.grants.cached_grants import CachedGrants

    if isinstance(store, CachedGrants):
        return store
    if is_url(store):
        store = store_at(store, "the grants")
    if not isinstance(cast("object", store), Store):
        raise DefinitionError(f"GrantLedger takes the path of a file, a URL or a Store, not {store!r}")
    return CachedGrants(StoredGrants(cast("Store", store)), ttl=cache_ttl)


def _now(step: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits."""
    try:
        return at_once(step)
    except StoreError as fault:
        raise GrantStoreError(str(fault)) from fault


def _filter_of(
    grant: str | None, principal: str | None, session: str | None, source: str | None, name: str | None
) -> GrantFilter:
    owner = _owner(principal, session)
    if (grant, owner, source, name) == (None,) * 4:
        raise DefinitionError("revoke() needs at least one argument; to revoke every grant, use revoke_all()")
    return GrantFilter(None if grant is None else key_of(grant), owner, source, name)


def _owner(principal: str | None, session: str | None) -> str | None:
    if principal is not None and session is not None:
        raise DefinitionError("a grant belongs to a principal or to a session; give one of them")
    if principal is not None:
        return f"principal:{principal}"
    return None if session is None else f"session:{session}"


def _facts(grant: ToolGrant) -> dict[str, str]:
    return {"grant": grant.key, "owner": grant.owner, "server": grant.source, "tool": grant.name}


def _provenance_of(binding: ToolBinding) -> tuple[str, str]:
    if binding.provenance is None:
        return "", ""
    found = binding.provenance()
    return found.endpoint, found.digest
