"""`StoredJournal`: a journal in a store; `SqliteJournal`, `RedisJournal` and `PostgresJournal` name one.

A record is synced to disk before its call runs. Its outcome is written before the caller gets it, and not
synced: after a power cut the last outcomes are unknown, and no call runs twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pydantic_core import from_json, to_json

from mcp_toolset.extensions.journal.journal_store import (
    DAY,
    LIFETIME,
    Found,
    Intent,
    Outcome,
    Record,
)
from mcp_toolset.extensions.journal.place import journal_path
from mcp_toolset.stores.places import store_at
from mcp_toolset.stores.store import ABSENT, Entry, Put, Store, new_tag

if TYPE_CHECKING:
    from mcp_toolset.stores.connection import StoreConnection

__all__ = ["PostgresJournal", "RedisJournal", "SqliteJournal", "StoredJournal", "journal_at"]

NAME: Final = "the journal of calls"
"""What errors call it."""

_SHELF: Final = "journal"
_CHUNK: Final = 100


class _Seen(NamedTuple):
    """A record, and the tag by which it changes."""

    record: Record
    tag: int


class StoredJournal:
    """A `JournalStore` over any `Store` that knows which of its users live.

    Attributes:
        store: The store; it is open while the journal is.
    """

    def __init__(
        self, store: Store, *, lifetime: float = LIFETIME, now: Callable[[], float] = time.time
    ) -> None:
        """Use a store.

        Args:
            store: The store.
            lifetime: Seconds for which a call is remembered.
            now: Seconds since the epoch.
        """
        self.store = store
        self._lifetime = lifetime
        self._now = now
        self._begun: dict[str, _Seen] = {}

    @property
    def name(self) -> str:
        """See `JournalStore`."""
        return self.store.name

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreError: it cannot be used.
        """
        await self.store.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, once its last user has left."""
        await self.store.__aexit__(kind, fault, trace)

    async def begin(self, intent: Intent) -> Found | None:
        """See `JournalStore`."""
        known = ABSENT
        while True:
            standing = await self._begin(intent, 1, known)
            if standing is None:
                return None
            seen = await self._settled(intent.id, standing[0])
            found = None if seen is None else self._live(seen)
            if found is not None:
                return found
            known = ABSENT if seen is None else seen[0].tag

    async def find(self, id: str) -> Found | None:
        """See `JournalStore`."""
        seen = await self._seen(id)
        return None if seen is None else self._live(seen)

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """See `JournalStore`."""
        [entry] = await self.store.get((_SHELF, intent.id))
        if entry is None or _record(entry.value).attempt != attempt:
            return False
        return await self._begin(intent, attempt + 1, entry.tag) is None

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        """See `JournalStore`."""
        await self._end(id, attempt, outcome)

    async def release(self, id: str, attempt: int) -> None:
        """See `JournalStore`."""
        await self._end(id, attempt, None)

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """See `JournalStore`."""
        names = [name for name in await self.store.names(_SHELF) if name.startswith(prefix)]
        oldest, found = self._now() - self._lifetime, list[Found]()
        for first in range(0, len(names), _CHUNK):
            some = names[first : first + _CHUNK]
            entries = await self.store.get(*((_SHELF, name) for name in some))
            for name, entry in zip(some, entries, strict=True):
                seen = await self._settled(name, entry)
                if seen is not None and seen[0].record.began >= oldest:
                    if not (undone and seen[1].standing == "done"):
                        found.append(seen[1])
                if len(found) >= limit:
                    return found
        return found

    async def settle(self, id: str, note: str | None) -> bool:
        """See `JournalStore`."""
        while (seen := await self._seen(id)) is not None and seen[1].standing != "running":
            outcome = None if note is None else Outcome("done", note=note)
            if await self._change(id, seen[0], outcome, synced=True):
                return True
        return False

    async def _begin(self, intent: Intent, attempt: int, known: int) -> Sequence[Entry | None] | None:
        """Record that an attempt begins; what there is, if it is not what is known."""
        now = self._now()
        record = Record(intent, attempt, "begun", self.store.own, now)
        at, seconds, tag = int(now * 1e6), max(self._lifetime, DAY), new_tag()
        put = Put(_SHELF, intent.id, _value(record), known, at, seconds, tag=tag)
        standing = await self.store.write(put)
        if standing is None:
            self._begun[intent.id] = _Seen(record, tag)
        return standing

    async def _end(self, id: str, attempt: int, outcome: Outcome | None) -> None:
        seen = self._begun.pop(id, None)
        while True:
            if seen is None:
                [entry] = await self.store.get((_SHELF, id))
                seen = None if entry is None else _Seen(_record(entry.value), entry.tag)
            if seen is None or seen.record.attempt != attempt:
                return
            if await self._change(id, seen, outcome, synced=False):
                return
            seen = None

    async def _change(self, id: str, seen: _Seen, outcome: Outcome | None, *, synced: bool) -> bool:
        """Record an outcome, or forget the call; false if another one has changed the record."""
        value = None
        if outcome is not None:
            state, sealed, note = outcome
            ended = seen.record._replace(state=state, ended=self._now(), outcome=sealed, note=note)
            value = _value(ended)
        return await self.store.write(Put(_SHELF, id, value, seen.tag), synced=synced) is None

    async def _seen(self, id: str) -> tuple[_Seen, Found] | None:
        [entry] = await self.store.get((_SHELF, id))
        return await self._settled(id, entry)

    async def _settled(self, id: str, entry: Entry | None) -> tuple[_Seen, Found] | None:
        """A record, and how its call stands."""
        while entry is not None:
            record = _record(entry.value)
            seen = _Seen(record, entry.tag)
            if record.state != "begun":
                return seen, Found(record, record.state)
            if record.owner == self.store.own or await self.store.lives(record.owner):
                return seen, Found(record, "running")
            # It may have recorded an outcome just before it ended.
            [again] = await self.store.get((_SHELF, id))
            if again == entry:
                return seen, Found(record, "unknown")
            entry = again
        return None

    def _live(self, seen: tuple[_Seen, Found]) -> Found | None:
        """A record that is not too old."""
        found = seen[1]
        is_old = found.record.began < self._now() - self._lifetime
        return None if is_old and found.standing != "running" else found


class SqliteJournal(StoredJournal):
    """A journal in one file, readable by its owner only, for the processes of one machine."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lifetime: float = LIFETIME,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use a file, which is made when the journal is entered; the user's own unless given."""
        self.path = journal_path() if path is None else Path(path)
        super().__init__(store_at(self.path, NAME, owned=True), lifetime=lifetime, now=now)


class RedisJournal(StoredJournal):
    """A journal in one namespace of Redis or Valkey."""

    def __init__(
        self,
        store: str | StoreConnection,
        *,
        lifetime: float = LIFETIME,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use a store.

        Args:
            store: Its URL, as for `SharedState`, or a connection that is not closed here.
            lifetime: Seconds for which a call is remembered.
            now: Seconds since the epoch.

        Raises:
            ConfigError: the URL cannot be used, or the extra `redis` is not installed.
        """
        from mcp_toolset.stores.redis import RedisStore

        super().__init__(RedisStore(store, NAME, owned=True), lifetime=lifetime, now=now)


class PostgresJournal(StoredJournal):
    """A journal in a table of PostgreSQL, over one connection. It runs on asyncio."""

    def __init__(
        self, conninfo: str, *, lifetime: float = LIFETIME, now: Callable[[], float] = time.time
    ) -> None:
        """Use a database.

        Args:
            conninfo: Where it is: `postgresql://…`, or words as libpq has them.
            lifetime: Seconds for which a call is remembered.
            now: Seconds since the epoch.

        Raises:
            ConfigError: the extra `postgres` is not installed.
        """
        from mcp_toolset.stores.postgres import PostgresStore

        super().__init__(PostgresStore(conninfo, NAME), lifetime=lifetime, now=now)


def journal_at(place: str | Path | None, *, lifetime: float = LIFETIME) -> StoredJournal:
    """The journal at a place.

    Args:
        place: The URL of a store, or the path of a file; `None` for the file of the user.
        lifetime: Seconds for which a call is remembered.
    """
    if not isinstance(place, str):
        return SqliteJournal(place, lifetime=lifetime)
    return StoredJournal(store_at(place, NAME, owned=True), lifetime=lifetime)


def _value(record: Record) -> bytes:
    """A record as it is stored: a line of JSON, and what the call came to if that is kept."""
    *told, sealed, note = record
    line = to_json([*told, note])
    return line if sealed is None else line + b"\n" + sealed


def _record(value: bytes) -> Record:
    line, kept, sealed = value.partition(b"\n")
    intent, attempt, state, owner, began, ended, note = from_json(line)
    outcome = sealed if kept else None
    return Record(Intent(*intent), attempt, state, owner, began, ended, outcome, note)
