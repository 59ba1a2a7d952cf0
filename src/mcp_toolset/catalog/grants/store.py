"""`ToolGrant`, `GrantRecord`, the protocol `GrantStore`, and `MemoryGrantStore`.

A store keeps data; `GrantLedger` decides what a grant allows. All methods are synchronous, because the gate
is, and may be called in several threads. A store that fails raises `GrantStoreError`, and nothing runs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, Final, Protocol

from mcp_toolset._records import dataclass, replace

MAX_GRANTS: Final = 10_000
"""The number of grants that a store keeps; the oldest are removed."""

MAX_OF_OWNER: Final = 1_000
"""The number of grants that a store keeps for one owner, so that no owner displaces those of all others."""

MAX_RECORDS: Final = 10_000
"""The number of outcomes of resolving that a store keeps, with refusals; the oldest are removed."""

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolGrant:
    """Permission for one owner to run one tool in the version that was granted.

    Attributes:
        handle: The unguessable text that the caller presents. Empty in what a store returns for a bearer
            grant: only a hash of such a handle is stored.
        name: The tool's public name.
        source: The name of the tool's source.
        tool: The tool's id there, or else its name.
        digest: The digest of its definition.
        owner: Who may use it; empty for a bearer grant, which anyone with the handle may use.
        expires: Seconds since the epoch.
        endpoint: The server of the source; empty for local tools.
        listed: The digest of the definition as that server listed it; empty for local tools.
        issued: Seconds since the epoch.
        uses: How often it may still be used; `None` for any number of times.
        revoked: Whether the application revoked it.
        key: The store's key: a hash of the handle.
    """

    handle: str
    name: str
    source: str
    tool: str
    digest: str
    owner: str
    expires: float
    endpoint: str = ""
    listed: str = ""
    issued: float = 0.0
    uses: int | None = None
    revoked: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """The outcome of resolving one id, a grant or a refusal.

    Attributes:
        owner: Who asked; empty for a caller without session and principal.
        replay: The replay key of the request; empty without one.
        id: The requested id, as the caller wrote it.
        at: When, in seconds since the epoch.
        expires: Until when the record is kept at least; a repeated request is answered from it.
        grant: The grant; `None` for a refusal.
        reason: Why it was refused.
    """

    owner: str
    replay: str
    id: str
    at: float
    expires: float
    grant: ToolGrant | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GrantFilter:
    """Selects grants: those that match every given field; `None` matches all."""

    key: str | None = None
    owner: str | None = None
    source: str | None = None
    name: str | None = None

    def fits(self, grant: ToolGrant) -> bool:
        """Whether a grant matches."""
        return all(wanted in (None, getattr(grant, field)) for field, wanted in self.items())

    def items(self) -> Iterator[tuple[str, str | None]]:
        """The given fields."""
        return iter([("key", self.key), ("owner", self.owner), ("source", self.source), ("name", self.name)])


class GrantStore(Protocol):
    """Stores grants and the outcomes of resolving."""

    @property
    def waits(self) -> bool:
        """Whether a write may wait for a disk or another process, so that it belongs in a worker thread."""
        ...

    def add(self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]) -> list[GrantRecord]:
        """Keep outcomes, all or none, and definitions by digest; return the records that stand.

        If a record of the same owner, replay key and id exists, it is kept and nothing
        is added.
        """
        ...

    def get(self, key: str) -> ToolGrant | None:
        """The grant of a handle's hash, in any state."""
        ...

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a tool's public name."""
        ...

    def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant of an owner for each name, in the order of the first."""
        ...

    def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        ...

    def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first; of one owner if given."""
        ...

    def definition(self, digest: str) -> Wire | None:
        """A definition that was granted, in wire form."""
        ...

    def take(self, key: str) -> bool:
        """Take one use of a grant; return whether one was left. A use is never taken twice."""
        ...

    def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        ...

    def revoke(self, which: GrantFilter) -> int:
        """Revoke grants; return how many were not revoked before."""
        ...

    def purge(self, before: float) -> int:
        """Remove what had expired by then, in seconds since the epoch; return the number of grants."""
        ...


def key_of(handle: str) -> str:
    """The key of a handle: a hash, so that a stolen store contains no usable handle."""
    return hashlib.sha256(handle.encode("utf-8", "surrogatepass")).hexdigest()


class MemoryGrantStore:
    """Grants in the memory of this process; after a restart every grant is refused."""

    waits = False

    def __init__(self, limit: int = MAX_GRANTS, *, of_owner: int = MAX_OF_OWNER) -> None:
        """Keep at most `limit` grants, and `of_owner` for one owner."""
        self._limit = limit
        self._of_owner = of_owner
        self._lock = RLock()
        self._grants: dict[str, ToolGrant] = {}
        self._owned: dict[str, OrderedDict[str, None]] = {}
        self._latest: dict[str, dict[str, str]] = {}
        self._records: OrderedDict[tuple[str, str, str] | object, GrantRecord] = OrderedDict()
        self._definitions: dict[str, Wire] = {}

    def add(self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]) -> list[GrantRecord]:
        """Store outcomes, and remove the oldest if there are too many."""
        with self._lock:
            self._definitions.update(definitions)
            stands = [self._add(record) for record in records]
            if len(self._definitions) > 2 * self._limit:
                self._drop_definitions()
            return stands

    def get(self, key: str) -> ToolGrant | None:
        """The grant of a handle's hash."""
        return self._grants.get(key)

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a name."""
        with self._lock:
            key = self._latest.get(owner, {}).get(name)
            return None if key is None else self._grants.get(key)

    def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant for each name."""
        with self._lock:
            return [self._grants[key] for key in self._latest.get(owner, {}).values()]

    def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        return self._current(self._records.get((owner, replay, id)))

    def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        with self._lock:
            found = [self._current(record) for record in self._records.values()]
        return [record for record in found if record is not None and owner in (None, record.owner)]

    def definition(self, digest: str) -> Wire | None:
        """A definition that was granted."""
        return self._definitions.get(digest)

    def take(self, key: str) -> bool:
        """Take one use of a grant."""
        with self._lock:
            grant = self._grants.get(key)
            if grant is None or grant.uses == 0:
                return False
            if grant.uses is not None:
                self._grants[key] = replace(grant, uses=grant.uses - 1)
            return True

    def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        with self._lock:
            grant = self._grants.get(key)
            if grant is not None and grant.uses is not None:
                self._grants[key] = replace(grant, uses=grant.uses + 1)

    def revoke(self, which: GrantFilter) -> int:
        """Revoke grants."""
        with self._lock:
            meant = [grant for grant in self._grants.values() if which.fits(grant) and not grant.revoked]
            self._grants.update({grant.key: replace(grant, revoked=True) for grant in meant})
        return len(meant)

    def purge(self, before: float) -> int:
        """Remove what had expired by then."""
        with self._lock:
            old = [key for key, grant in self._grants.items() if grant.expires <= before]
            for key in old:
                self._forget(key)
            for name in [name for name, record in self._records.items() if record.expires <= before]:
                del self._records[name]
            self._drop_definitions()
        return len(old)

    def _add(self, record: GrantRecord) -> GrantRecord:
        name = (record.owner, record.replay, record.id) if record.replay else object()
        standing = self._current(self._records.get(name))
        if standing is not None:
            return standing
        grant = record.grant
        if grant is not None:
            kept = grant if grant.owner else replace(grant, handle="")
            self._keep(kept)
            self._records[name] = replace(record, grant=kept)
        else:
            self._records[name] = record
        while len(self._records) > MAX_RECORDS:
            self._records.popitem(last=False)
        return record

    def _current(self, record: GrantRecord | None) -> GrantRecord | None:
        """A record with the present state of its grant."""
        if record is None or record.grant is None:
            return record
        return replace(
            record, grant=self._grants.get(record.grant.key) or replace(record.grant, revoked=True)
        )

    def _keep(self, grant: ToolGrant) -> None:
        self._grants[grant.key] = grant
        if grant.owner:
            self._latest.setdefault(grant.owner, {})[grant.name] = grant.key
            owned = self._owned.setdefault(grant.owner, OrderedDict())
            owned[grant.key] = None
            if len(owned) > self._of_owner:
                self._forget(next(iter(owned)))
        while len(self._grants) > self._limit:
            self._forget(next(iter(self._grants)))

    def _forget(self, key: str) -> None:
        grant = self._grants.pop(key)
        owned, held = self._owned.get(grant.owner), self._latest.get(grant.owner)
        if owned is not None:
            owned.pop(key, None)
            if not owned:
                del self._owned[grant.owner]
        if held is not None and held.get(grant.name) == key:
            del held[grant.name]
            if not held:
                del self._latest[grant.owner]

    def _drop_definitions(self) -> None:
        used = {grant.digest for grant in self._grants.values()}
        self._definitions = {digest: wire for digest, wire in self._definitions.items() if digest in used}
