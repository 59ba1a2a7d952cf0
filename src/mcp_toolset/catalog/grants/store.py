"""Grants, their records, and where they are kept: `StoredGrants`, and `GrantStore` for the gate.

A store keeps data; `GrantLedger` decides what a grant allows. All methods of a `GrantStore` are synchronous,
because the gate is, and may be called in several threads. A store that fails raises `GrantStoreError`, and
nothing runs. In a `Store`, a grant stands under the hash of its handle. Two shelves of its owner name it: one
all grants, one the newest for each name. Owners are in the names of shelves as digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from random import randrange
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import GrantStoreError, StoreError
from mcp_toolset.stores.store import ABSENT, Entry, MemoryStore, Put, Store, at_once

if TYPE_CHECKING:
    from mcp_toolset.stores.sqlite import DirectFile

_T = TypeVar("_T")

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
        """True if a grant matches."""
        return all(wanted in (None, getattr(grant, field)) for field, wanted in self.items())

    def items(self) -> Iterator[tuple[str, str | None]]:
        """The given fields."""
        return iter([("key", self.key), ("owner", self.owner), ("source", self.source), ("name", self.name)])


def key_of(handle: str) -> str:
    """The key of a handle: a hash, so that a stolen store contains no usable handle."""
    return hashlib.sha256(handle.encode("utf-8", "surrogatepass")).hexdigest()


MAX_KEPT: Final = 100_000
"""The number of grants that a file keeps; the oldest are removed."""

REVOKED: Final = "revoked"
"""The topic of revocations."""

GRANTED: Final = "granted"
"""The topic of new grants of owners."""

_GRANTS: Final = "grants"
_RECORDS: Final = "records of grants"
_DEFINITIONS: Final = "granted definitions"
_CHUNK: Final = 500
_NAMES: Final = tuple(field.name for field in fields(ToolGrant))
_values: Final = attrgetter(*_NAMES)


class StoredGrants:
    """An `AsyncGrantStore` over any `Store`."""

    def __init__(
        self, store: Store, *, limit: int | None = None, of_owner: int = MAX_OF_OWNER, tells: bool = False
    ) -> None:
        """Use a store.

        Args:
            store: The store.
            limit: The number of grants to keep; what has ended goes by itself.
            of_owner: The number of grants to keep for one owner.
            tells: Whether those who listen to the store are told of grants and revocations.
        """
        self.name = store.name  # the name of the store in errors
        self._store = store
        self._limit = limit
        self._of_owner = of_owner
        self._tells = tells
        self._read: dict[int, ToolGrant] = {}
        self._last = 0

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes, all or none; a record that stands is kept."""
        names = [_name_of(record) for record in records]
        while True:
            standing = await self._store.get(*((_RECORDS, name) for name in names))
            new: dict[str, GrantRecord] = {}
            for name, record, entry in zip(names, records, standing, strict=True):
                if entry is None:
                    new.setdefault(name, record)
            if not new or await self._added(new, definitions):
                break
        kept = iter(await self._records([entry for entry in standing if entry is not None]))
        return [
            next(kept) if entry is not None else new[name]
            for name, entry in zip(names, standing, strict=True)
        ]

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        """The grant of a handle's hash, else the owner's newest for a name."""
        if not owner:
            return await self.get(key)
        grant, newest = await self._store.get((_GRANTS, key), (_held_by(owner), name))
        if grant is not None:
            return self._grant(grant)
        return None if newest is None else await self.get(newest.value.decode())

    async def get(self, key: str) -> ToolGrant | None:
        [found] = await self._store.get((_GRANTS, key))
        return None if found is None else self._grant(found)

    async def latest(self, owner: str, name: str) -> ToolGrant | None:
        [newest] = await self._store.get((_held_by(owner), name))
        return None if newest is None else await self.get(newest.value.decode())

    async def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant for each name, in the order of the first."""
        shelf = _held_by(owner)
        names = await self._store.names(shelf)
        newest = await self._store.get(*((shelf, name) for name in reversed(names)))
        keys = [entry.value.decode() for entry in newest if entry is not None]
        found = await self._store.get(*((_GRANTS, key) for key in keys))
        return [self._grant(entry) for entry in found if entry is not None]

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        [found] = await self._store.get((_RECORDS, _digest(owner, replay, id)))
        return None if found is None else (await self._records([found]))[0]

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        names, found = (await self._store.names(_RECORDS))[::-1], list[GrantRecord]()
        for first in range(0, len(names), _CHUNK):
            entries = await self._store.get(*((_RECORDS, name) for name in names[first : first + _CHUNK]))
            found += await self._records([entry for entry in entries if entry is not None])
        return [record for record in found if owner in (None, record.owner)]

    async def definition(self, digest: str) -> Wire | None:
        [found] = await self._store.get((_DEFINITIONS, digest))
        return None if found is None else json.loads(found.value)

    async def take(self, key: str) -> bool:
        """Take one use of an unrevoked grant."""
        while (grant := (await self._store.get((_GRANTS, key)))[0]) is not None:
            known = self._grant(grant)
            if known.revoked or known.uses == 0:
                return False
            if known.uses is None or await self._counted(known, known.uses - 1, grant.tag):
                return True
        return False

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        while (grant := (await self._store.get((_GRANTS, key)))[0]) is not None:
            known = self._grant(grant)
            if known.uses is None or await self._counted(known, known.uses + 1, grant.tag):
                return

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants, and tell all who listen in the same step."""
        if which.key is not None:
            keys: Sequence[str] = [which.key]
        else:
            keys = await self._store.names(_of(which.owner) if which.owner else _GRANTS)
        wanted = {name: value for name, value in which.items() if value is not None}
        tell, count = self._told(REVOKED, wanted), 0
        for first in range(0, max(1, len(keys)), _CHUNK):
            count += await self._revoked(which, keys[first : first + _CHUNK], tell)
        return count

    async def _revoked(self, which: GrantFilter, keys: Sequence[str], tell: bytes) -> int:
        while True:
            puts: list[Put] = []
            for entry in await self._store.get(*((_GRANTS, key) for key in keys)):
                grant = None if entry is None else self._grant(entry)
                if entry is not None and grant is not None and which.fits(grant) and not grant.revoked:
                    puts.append(Put(_GRANTS, grant.key, _text(replace(grant, revoked=True)), entry.tag))
            if not (puts or tell) or await self._store.write(*puts, tell=tell) is None:
                return len(puts)

    async def _added(self, new: Mapping[str, GrantRecord], definitions: Mapping[str, Wire]) -> bool:
        """Keep new outcomes; false if one of them was kept meanwhile."""
        records = list(new.values())
        owned = [grant for record in records if (grant := record.grant) is not None and grant.owner]
        held = await self._store.get(*((_held_by(grant.owner), grant.name) for grant in owned))
        known = {(grant.owner, grant.name) for grant, one in zip(owned, held, strict=True) if one is not None}
        puts: dict[tuple[str, str], Put] = {}

        def put(*words: Any, **more: Any) -> None:
            puts[words[:2]] = Put(*words, **more)

        last = max(map(_seconds, records))
        twice = None if self._limit is None else 2 * self._limit
        for digest, wire in definitions.items():
            put(_DEFINITIONS, digest, json.dumps(wire).encode(), None, self._next(), last, twice)
        for name, record in new.items():
            grant, at, seconds = record.grant, self._next(), _seconds(record)
            put(_RECORDS, name, _line(record), ABSENT, at, seconds, MAX_RECORDS)
            if grant is None:
                continue
            put(_GRANTS, grant.key, _text(grant), None, at, seconds)
            if grant.owner:
                put(_of(grant.owner), grant.key, b"", None, at, seconds)
                shelf, key = _held_by(grant.owner), grant.key.encode()
                first = None if (grant.owner, grant.name) in known else at
                first = puts[shelf, grant.name].at if (shelf, grant.name) in puts else first
                put(shelf, grant.name, key, None, first, seconds)
        names = {owner: [one.name for one in owned if one.owner == owner] for owner in _owners(owned)}
        tell = self._told(GRANTED, names) if names else b""
        if await self._store.write(*puts.values(), tell=tell) is not None:
            return False
        for owner in names:
            await self._shrink(_of(owner), self._of_owner)
        if self._limit is not None:
            await self._shrink(_GRANTS, self._limit)
        return True

    async def _shrink(self, shelf: str, most: int) -> None:
        """Remove the oldest grants that a shelf names, if it names too many; looked at now and then."""
        if randrange(max(1, most // 50)):
            return
        keys = (await self._store.names(shelf))[most:]
        found = await self._store.get(*((_GRANTS, key) for key in keys))
        grants = {
            key: self._grant(entry) for key, entry in zip(keys, found, strict=True) if entry is not None
        }
        puts = [Put(shelf, key, None) for key in keys]
        for key, grant in grants.items():
            other = _of(grant.owner) if shelf == _GRANTS else _GRANTS
            puts += [Put(other, key, None)]
            if grant.owner:
                [newest] = await self._store.get((_held_by(grant.owner), grant.name))
                if newest is not None and newest.value.decode() == key:
                    puts += [Put(_held_by(grant.owner), grant.name, None)]
        if puts:
            await self._store.write(*puts)

    async def _counted(self, grant: ToolGrant, uses: int, tag: int) -> bool:
        put = Put(_GRANTS, grant.key, _text(replace(grant, uses=uses)), tag)
        return await self._store.write(put) is None

    async def _records(self, entries: Sequence[Entry]) -> list[GrantRecord]:
        """Records with the present state of their grants; a grant that was removed is not valid."""
        said = [json.loads(entry.value) for entry in entries]
        keys = [one.pop("key") for one in said]
        found = iter(await self._store.get(*((_GRANTS, key) for key in keys if key)))
        records: list[GrantRecord] = []
        for one, key in zip(said, keys, strict=True):
            record, entry = GrantRecord(**one), next(found) if key else None
            if entry is not None:
                record = replace(record, grant=self._grant(entry))
            elif key:
                gone = ToolGrant(
                    "", record.id, "", "", "", record.owner, record.expires, revoked=True, key=key
                )
                record = replace(record, grant=gone)
            records.append(record)
        return records

    def _grant(self, entry: Entry) -> ToolGrant:
        """The grant of an entry, which is read once."""
        found = self._read.get(entry.tag)
        if found is None:
            if len(self._read) >= MAX_GRANTS:
                self._read.clear()
            # A later version may have added fields.
            said = {name: value for name, value in json.loads(entry.value).items() if name in _NAMES}
            found = self._read[entry.tag] = ToolGrant(**said)
        return found

    def _told(self, topic: str, what: Mapping[str, Any]) -> bytes:
        return f"{topic}\n{json.dumps(what)}".encode() if self._tells else b""

    def _next(self) -> int:
        """The place of something new in an order."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last


class GrantStore:
    """The grants of a `Store` whose steps never wait for a loop, so that the gate can ask for them.

    Attributes:
        waits: Whether a write may wait for a disk or another process, so that it belongs in a worker thread.
    """

    waits = False

    def __init__(self, store: Store, *, limit: int = MAX_KEPT, of_owner: int = MAX_OF_OWNER) -> None:
        """Use a store; see `StoredGrants`."""
        self._grants = StoredGrants(store, limit=limit, of_owner=of_owner)

    def add(self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]) -> list[GrantRecord]:
        """Keep outcomes, all or none, and definitions by digest; return the records that stand.

        If a record of the same owner, replay key and id exists, it is kept and nothing is added. A record is
        kept twice as long as it holds.
        """
        return _now(self._grants.save(records, definitions))

    def get(self, key: str) -> ToolGrant | None:
        """The grant of a handle's hash, in any state."""
        return _now(self._grants.get(key))

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a tool's public name."""
        return _now(self._grants.latest(owner, name))

    def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant of an owner for each name, in the order of the first."""
        return _now(self._grants.held(owner))

    def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        """The outcome of an id under a replay key."""
        return _now(self._grants.recorded(owner, replay, id))

    def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first; of one owner if given."""
        return _now(self._grants.records(owner))

    def definition(self, digest: str) -> Wire | None:
        """A definition that was granted, in wire form."""
        return _now(self._grants.definition(digest))

    def take(self, key: str) -> bool:
        """Take one use of an unrevoked grant; return whether one was left. A use is never taken twice."""
        return _now(self._grants.take(key))

    def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        _now(self._grants.give_back(key))

    def revoke(self, which: GrantFilter) -> int:
        """Revoke grants; return how many were not revoked before."""
        return _now(self._grants.revoke(which))


class MemoryGrantStore(GrantStore):
    """Grants in the memory of this process; after a restart every grant is refused."""

    def __init__(
        self, limit: int = MAX_GRANTS, *, of_owner: int = MAX_OF_OWNER, now: Callable[[], float] = time.time
    ) -> None:
        """Keep at most `limit` grants, and `of_owner` for one owner."""
        super().__init__(MemoryStore(now), limit=limit, of_owner=of_owner)


class SqliteGrantStore(GrantStore):
    """Grants in an SQLite file; several processes may share it. Close it, or use it in a `with` block."""

    waits = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit: int = MAX_KEPT,
        of_owner: int = MAX_OF_OWNER,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open the file, or create it, readable by its owner only.

        Args:
            path: The file; its directory must exist.
            limit: The number of grants to keep.
            of_owner: The number of grants to keep for one owner.
            now: Seconds since the epoch.

        Raises:
            GrantStoreError: it cannot be opened, is damaged, of another program, or of a later
                version of this one. The file is unchanged.
        """
        from mcp_toolset.stores.sqlite import DirectFile

        self.path = Path(path)
        try:
            self._file: DirectFile = DirectFile(self.path, "the grants", now)
        except StoreError as fault:
            raise GrantStoreError(str(fault)) from fault
        super().__init__(self._file, limit=limit, of_owner=of_owner)

    def close(self) -> None:
        """Close the file; later calls raise `GrantStoreError`."""
        self._file.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


class AwaitedGrants:
    """A synchronous store as an awaited one: in a worker thread if its `waits` says so."""

    def __init__(self, store: GrantStore) -> None:
        self.name = type(store).__name__
        self._store = store

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        return await self._done(lambda: self._store.add(records, definitions))

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        return await self._done(lambda: self._store.recorded(owner, replay, id))

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        return await self._done(lambda: self._store.records(owner))

    async def take(self, key: str) -> bool:
        return await self._done(lambda: self._store.take(key))

    async def give_back(self, key: str) -> None:
        await self._done(lambda: self._store.give_back(key))

    async def revoke(self, which: GrantFilter) -> int:
        return await self._done(lambda: self._store.revoke(which))

    async def _done(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work) if self._store.waits else work()


def _now(step: Coroutine[Any, Any, _T]) -> _T:
    try:
        return at_once(step)
    except StoreError as fault:
        raise GrantStoreError(str(fault)) from fault


def _owners(grants: Iterable[ToolGrant]) -> list[str]:
    return list(dict.fromkeys(grant.owner for grant in grants))


def _seconds(record: GrantRecord) -> float:
    """How long a record is kept: twice as long as it holds, so that its owner can be told why it ended."""
    return 2 * max(1.0, record.expires - record.at)


def _line(record: GrantRecord) -> bytes:
    said = {name: getattr(record, name) for name in ("owner", "replay", "id", "at", "expires", "reason")}
    return json.dumps({**said, "key": "" if record.grant is None else record.grant.key}).encode()


def _text(grant: ToolGrant) -> bytes:
    """A grant as it is stored; the handle of a bearer grant is not."""
    return json.dumps(
        dict(zip(_NAMES, _values(grant), strict=True), handle=grant.owner and grant.handle)
    ).encode()


def _name_of(record: GrantRecord) -> str:
    return _digest(record.owner, record.replay, record.id) if record.replay else token_hex(16)


@lru_cache(maxsize=1024)
def _of(owner: str) -> str:
    return f"grants of {_digest(owner)}"


@lru_cache(maxsize=1024)
def _held_by(owner: str) -> str:
    return f"held by {_digest(owner)}"


def _digest(*parts: str) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
