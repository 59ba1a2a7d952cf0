"""Grants, their records, and how they stand in a `Store`: `StoredGrants`.

It keeps data; `GrantLedger` decides what a grant allows. A grant stands under the hash of its grant
string. Two shelves of its owner name it: one all grants, one the newest for each name. Owners are in the
names of shelves as digests.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from random import randrange
from secrets import token_hex
from typing import Any, Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.stores.store import ABSENT, Entry, Put, Store, hashed

MAX_GRANTS: Final = 10_000
"""The number of grants that are kept in memory; the oldest are removed."""

MAX_OF_OWNER: Final = 1_000
"""The number of grants that a store keeps for one owner, so that no owner displaces those of all others."""

MAX_RECORDS: Final = 10_000
"""The number of outcomes of resolving that a store keeps, with refusals; the oldest are removed."""

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolGrant:
    """Permission for one owner to run one tool in the version that was granted.

    Attributes:
        grant: The grant string, an unguessable text that the caller presents. Empty in what a store returns
            for a bearer grant: only a hash of such a string is stored.
        name: The tool's public name.
        source: The name of the tool's source.
        tool: The tool's id there, or else its name.
        digest: The digest of its definition.
        owner: The caller who may use it; empty for a bearer grant, which anyone with the string may use.
        expires: Seconds since the epoch.
        endpoint: The server of the source; empty for local tools.
        listed: The digest of the definition as that server listed it; empty for local tools.
        issued: Seconds since the epoch.
        uses: The number of uses that are left; `None` for no limit.
        revoked: True if the application revoked it.
        key: The store's key: a hash of the grant string.
    """

    grant: str
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
        owner: The caller; empty for a caller without session and principal.
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
        return iter([("key", self.key), ("owner", self.owner), ("source", self.source), ("name", self.name)])


def key_of(grant: str) -> str:
    """The key of a grant string: a hash, so that a stolen store contains no usable one."""
    return hashlib.sha256(grant.encode("utf-8", "surrogatepass")).hexdigest()


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
    """The grants in any `Store`; a step that fails raises `StoreError`, and has done nothing."""

    def __init__(self, store: Store, *, limit: int | None = None, tells: bool = False) -> None:
        """Use a store.

        Args:
            store: The store.
            limit: The number of grants to keep; what has ended goes by itself.
            tells: True if grants and revocations are published to the listeners of the store.
        """
        self.store = store
        self._limit = limit
        self._tells = tells
        self._read: dict[bytes, ToolGrant] = {}
        self._last = 0

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes, all or none, and definitions by digest; return the records that stand.

        If a record of the same owner, replay key and id exists, it is kept and nothing is added. A record is
        kept twice as long as it holds.
        """
        names = [_name_of(record) for record in records]
        while True:
            standing = await self.store.get(*((_RECORDS, name) for name in names))
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
        """The grant of a hash of a grant string, else the owner's newest for a name."""
        if not owner:
            return await self.get(key)
        grant, newest = await self.store.get((_GRANTS, key), (_held_by(owner), name))
        if grant is not None:
            return self._grant(grant)
        return None if newest is None else await self.get(newest.value.decode())

    async def get(self, key: str) -> ToolGrant | None:
        [entry] = await self.store.get((_GRANTS, key))
        return None if entry is None else self._grant(entry)

    async def latest(self, owner: str, name: str) -> ToolGrant | None:
        [newest] = await self.store.get((_held_by(owner), name))
        return None if newest is None else await self.get(newest.value.decode())

    async def held(self, owner: str) -> list[ToolGrant]:
        """The newest grant for each name, in the order of the first."""
        shelf = _held_by(owner)
        names = await self.store.names(shelf)
        newest = await self.store.get(*((shelf, name) for name in reversed(names)))
        keys = [entry.value.decode() for entry in newest if entry is not None]
        entries = await self.store.get(*((_GRANTS, key) for key in keys))
        return [self._grant(entry) for entry in entries if entry is not None]

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        [entry] = await self.store.get((_RECORDS, _digest(owner, replay, id)))
        return None if entry is None else (await self._records([entry]))[0]

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        names, found = (await self.store.names(_RECORDS))[::-1], list[GrantRecord]()
        for first in range(0, len(names), _CHUNK):
            entries = await self.store.get(*((_RECORDS, name) for name in names[first : first + _CHUNK]))
            found += await self._records([entry for entry in entries if entry is not None])
        return [record for record in found if owner in (None, record.owner)]

    async def definition(self, digest: str) -> Wire | None:
        [entry] = await self.store.get((_DEFINITIONS, digest))
        return None if entry is None else json.loads(entry.value)

    async def take(self, key: str) -> bool:
        """Take one use of an unrevoked grant."""
        while (grant := (await self.store.get((_GRANTS, key)))[0]) is not None:
            known = self._grant(grant)
            if known.revoked or known.uses == 0:
                return False
            if known.uses is None or await self._counted(known, known.uses - 1, grant.tag):
                return True
        return False

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        while (grant := (await self.store.get((_GRANTS, key)))[0]) is not None:
            known = self._grant(grant)
            if known.uses is None or await self._counted(known, known.uses + 1, grant.tag):
                return

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants, and tell all who listen in the same step."""
        if which.key is not None:
            keys: Sequence[str] = [which.key]
        else:
            keys = await self.store.names(_of(which.owner) if which.owner else _GRANTS)
        wanted = {name: value for name, value in which.items() if value is not None}
        tell, count = self._told(REVOKED, wanted), 0
        for first in range(0, max(1, len(keys)), _CHUNK):
            count += await self._revoked(which, keys[first : first + _CHUNK], tell)
        return count

    async def _revoked(self, which: GrantFilter, keys: Sequence[str], tell: bytes) -> int:
        while True:
            puts: list[Put] = []
            for entry in await self.store.get(*((_GRANTS, key) for key in keys)):
                grant = None if entry is None else self._grant(entry)
                if entry is not None and grant is not None and which.fits(grant) and not grant.revoked:
                    puts.append(Put(_GRANTS, grant.key, _text(replace(grant, revoked=True)), entry.tag))
            if not (puts or tell) or await self.store.write(*puts, tell=tell) is None:
                return len(puts)

    async def _added(self, new: Mapping[str, GrantRecord], definitions: Mapping[str, Wire]) -> bool:
        """Keep new outcomes; false if one of them was kept meanwhile."""
        records = list(new.values())
        owned = [grant for record in records if (grant := record.grant) is not None and grant.owner]
        held = await self.store.get(*((_held_by(grant.owner), grant.name) for grant in owned))
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
        if await self.store.write(*puts.values(), tell=tell) is not None:
            return False
        for owner in names:
            await self._shrink(_of(owner), MAX_OF_OWNER)
        if self._limit is not None:
            await self._shrink(_GRANTS, self._limit)
        return True

    async def _shrink(self, shelf: str, most: int) -> None:
        """Remove the oldest grants that a shelf names, if it names too many; looked at now and then."""
        if randrange(max(1, most // 50)):
            return
        keys = (await self.store.names(shelf))[most:]
        entries = await self.store.get(*((_GRANTS, key) for key in keys))
        grants = {
            key: self._grant(entry) for key, entry in zip(keys, entries, strict=True) if entry is not None
        }
        puts = [Put(shelf, key, None) for key in keys]
        for key, grant in grants.items():
            other = _of(grant.owner) if shelf == _GRANTS else _GRANTS
            puts += [Put(other, key, None)]
            if grant.owner:
                [newest] = await self.store.get((_held_by(grant.owner), grant.name))
                if newest is not None and newest.value.decode() == key:
                    puts += [Put(_held_by(grant.owner), grant.name, None)]
        if puts:
            await self.store.write(*puts)

    async def _counted(self, grant: ToolGrant, uses: int, tag: int) -> bool:
        put = Put(_GRANTS, grant.key, _text(replace(grant, uses=uses)), tag)
        return await self.store.write(put) is None

    async def _records(self, entries: Sequence[Entry]) -> list[GrantRecord]:
        """Records with the present state of their grants; a grant that was removed is not valid."""
        said = [json.loads(entry.value) for entry in entries]
        keys = [one.pop("key") for one in said]
        found = iter(await self.store.get(*((_GRANTS, key) for key in keys if key)))
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
        found = self._read.get(entry.value)
        if found is None:
            if len(self._read) >= MAX_GRANTS:
                self._read.clear()
            # A later version may have added fields.
            said = {name: value for name, value in json.loads(entry.value).items() if name in _NAMES}
            found = self._read[entry.value] = ToolGrant(**said)
        return found

    def _told(self, topic: str, what: Mapping[str, Any]) -> bytes:
        return f"{topic}\n{json.dumps(what)}".encode() if self._tells else b""

    def _next(self) -> int:
        """The place of something new in an order."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last


def _owners(grants: Iterable[ToolGrant]) -> list[str]:
    return list(dict.fromkeys(grant.owner for grant in grants))


def _seconds(record: GrantRecord) -> float:
    """Seconds for which a record is kept: twice its validity, so that its owner can learn why it ended."""
    return 2 * max(1.0, record.expires - record.at)


def _line(record: GrantRecord) -> bytes:
    members = {name: getattr(record, name) for name in ("owner", "replay", "id", "at", "expires", "reason")}
    return json.dumps({**members, "key": "" if record.grant is None else record.grant.key}).encode()


def _text(grant: ToolGrant) -> bytes:
    """A grant as it is stored; the string of a bearer grant is not."""
    return json.dumps(
        dict(zip(_NAMES, _values(grant), strict=True), grant=grant.owner and grant.grant)
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
    return hashed(json.dumps(parts))
