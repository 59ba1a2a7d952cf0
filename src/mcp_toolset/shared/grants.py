"""`SharedGrants`: the grants of all replicas, and how each replica hears at once of a revocation."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from secrets import token_hex
from typing import Any, Final

from mcp_toolset._records import replace
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.store import (
    MAX_OF_OWNER,
    MAX_RECORDS,
    GrantFilter,
    GrantRecord,
    ToolGrant,
    Wire,
)
from mcp_toolset.shared import grant_scripts as scripts
from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.connection import StoreConnection

REVOKED: Final = "revoked"
"""The topic of revocations."""

GRANTED: Final = "granted"
"""The topic of new grants of owners."""

HEARD_AGE: Final = 300.0
"""Seconds for which a replica uses a grant without asking, while it hears of revocations."""

DEAF_AGE: Final = 3.0
"""Seconds for which a replica uses a grant without asking, while it may miss revocations."""

_GRANT_FIELDS: Final = frozenset(field.name for field in fields(ToolGrant))


class SharedGrants:
    """An `AsyncGrantStore` in Redis or Valkey. Owners are stored as digests in the names of keys."""

    def __init__(
        self, connection: StoreConnection, topics: Topics, now: Callable[[], float] = time.time
    ) -> None:
        """Use a connection; `now` is in seconds since the epoch."""
        self.name = connection.name
        self._connection = connection
        self._topics = topics
        self._now = now
        self._prefix = connection.key("")
        self._channel = topics.channel()

    def cached(self) -> CachedGrants:
        """The grants with a copy in this process, which follows what other replicas revoke."""
        cache = CachedGrants(self, max_age=HEARD_AGE)

        def heard(message: bytes) -> None:
            cache.heard(GrantFilter(**json.loads(message)))

        def granted(message: bytes) -> None:
            for owner, names in json.loads(message).items():
                cache.heard_of_grants(owner, names)

        def changed(current: bool) -> None:
            cache.doubt(HEARD_AGE if current else DEAF_AGE)

        changed(self._topics.is_current)
        self._topics.subscribe(REVOKED, heard)
        self._topics.subscribe(GRANTED, granted)
        self._topics.on_change(changed)
        return cache

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Wire]
    ) -> list[GrantRecord]:
        """Keep outcomes, all or none; a record that stands is kept."""
        last = max((_till(record) for record in records), default=0)
        texts = {digest: (json.dumps(wire), str(last)) for digest, wire in definitions.items()}
        found = await self._run(
            scripts.SAVE,
            int(self._now() * 1000),
            MAX_OF_OWNER,
            MAX_RECORDS,
            json.dumps([_sent(record) for record in records]),
            json.dumps(texts),
            self._channel,
            _news(records),
            to="save grants",
        )
        return [_standing(record, _record(row)) for record, row in zip(records, found, strict=True)]

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        """The grant of a handle's hash, else the owner's newest for a name."""
        return _grant(await self._run(scripts.FIND, key, _hashed(owner), name, to="look up a grant"))

    async def held(self, owner: str) -> list[ToolGrant]:
        rows = await self._run(scripts.HELD, _hashed(owner), to="look up what a caller holds")
        return [grant for grant in map(_grant, rows) if grant is not None]

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        row = await self._run(scripts.RECORDED, _id_of(owner, replay, id), to="look up a replay")
        return None if row is None else _record(row)

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        """The outcomes of resolving, the oldest first."""
        place = "records" if owner is None else f"o:{_hashed(owner)}:records"
        return [_record(row) for row in await self._run(scripts.RECORDS, place, to="list records")]

    async def definition(self, digest: str) -> Wire | None:
        key = self._connection.key("d", digest)
        found = await self._connection.run("GET", key, to="look up a definition")
        return None if found is None else json.loads(found)

    async def take(self, key: str) -> bool:
        """Take one use of an unrevoked grant."""
        return bool(await self._run(scripts.TAKE, key, to="count a use of a grant"))

    async def give_back(self, key: str) -> None:
        """Return a use of a call that did not run."""
        await self._run(scripts.GIVE_BACK, key, to="return a use of a grant")

    async def revoke(self, which: GrantFilter) -> int:
        """Revoke grants, and tell all replicas in the same step."""
        wanted = {name: value for name, value in which.items() if value is not None}
        stored = {**wanted, "owner": _hashed(which.owner)} if which.owner is not None else wanted
        message = f"{REVOKED}\n{json.dumps(wanted)}"
        return await self._run(scripts.REVOKE, json.dumps(stored), self._channel, message, to="revoke grants")

    async def _run(self, script: Any, *arguments: str | int, to: str) -> Any:
        return await self._connection.script(script, (), self._prefix, *arguments, to=to)


def _news(records: Iterable[GrantRecord]) -> str:
    """What other replicas are told of new grants; empty if they need not be."""
    names: dict[str, list[str]] = {}
    for record in records:
        if record.grant is not None and record.owner:
            names.setdefault(record.owner, []).append(record.grant.name)
    return f"{GRANTED}\n{json.dumps(names)}" if names else ""


def _till(record: GrantRecord) -> int:
    """Until when a record is kept, in milliseconds: twice as long as it is good for."""
    return int((record.expires + max(0.0, record.expires - record.at)) * 1000)


def _sent(record: GrantRecord) -> dict[str, Any]:
    grant = record.grant
    said = {name: getattr(record, name) for name in ("owner", "replay", "id", "at", "expires", "reason")}
    sent: dict[str, Any] = {
        "id": _id_of(record.owner, record.replay, record.id) if record.replay else token_hex(16),
        "replayed": bool(record.replay),
        "owner": _hashed(record.owner),
        "json": json.dumps(said),
        "till": str(_till(record)),
    }
    if grant is not None:
        kept = grant if grant.owner else replace(grant, handle="")
        sent["grant"] = {
            "key": grant.key,
            "json": json.dumps(asdict(kept)),
            "uses": "" if grant.uses is None else str(grant.uses),
            "revoked": "1" if grant.revoked else "0",
            "source": grant.source,
            "name": grant.name,
        }
    return sent


def _grant(row: Sequence[bytes] | None) -> ToolGrant | None:
    if not row:
        return None
    # A later version may have added fields.
    said = {name: value for name, value in json.loads(row[0]).items() if name in _GRANT_FIELDS}
    said |= {"uses": int(row[1]) if row[1] else None, "revoked": row[2] == b"1"}
    return ToolGrant(**said)


def _record(row: Sequence[bytes]) -> GrantRecord:
    said = json.loads(row[0])
    if not row[1]:
        return GrantRecord(**said)
    grant = _grant(row[2:]) if row[2] else None
    if grant is None:
        key, till = row[1].decode(), said["expires"]
        grant = ToolGrant("", said["id"], "", "", "", said["owner"], till, revoked=True, key=key)
    return GrantRecord(**said, grant=grant)


def _standing(given: GrantRecord, stored: GrantRecord) -> GrantRecord:
    """The record that stands; the handle of a new bearer grant is known here alone."""
    new, kept = given.grant, stored.grant
    if new is None or kept is None or new.key != kept.key:
        return stored
    return replace(stored, grant=replace(kept, handle=new.handle))


def _hashed(owner: str) -> str:
    return owner and _digest((owner,))


def _id_of(owner: str, replay: str, id: str) -> str:
    return _digest((owner, replay, id))


def _digest(parts: Iterable[str]) -> str:
    text = json.dumps(list(parts)).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
