"""`Store`: a table of entries with the few steps that features need; `MemoryStore`: one in this process.

An entry stands on a shelf under a name. Its tag changes with each write, so that a writer can say which value
it has seen. A step is done whole or not at all. `store_at` finds the store that a program or a file names.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from hashlib import blake2b
from math import inf
from os import PathLike
from pathlib import Path
from random import getrandbits
from threading import RLock
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeGuard, TypeVar, cast

from mcp_toolset.errors import ConfigError, DefinitionError

ABSENT: Final = 0
"""The tag of an entry that does not exist."""

Place = tuple[str, str]
"""A shelf and a name."""

_T = TypeVar("_T")


class Entry(NamedTuple):
    """An entry of a store.

    Attributes:
        value: Whatever the feature has written.
        tag: A number that no other value of the place has had; never `ABSENT`.
    """

    value: bytes
    tag: int


def new_tag() -> int:
    return getrandbits(52) + 1


def hashed(text: str) -> str:
    """A name for what may be long, or tells of a caller."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


class Put(NamedTuple):
    """One change of a step.

    Attributes:
        shelf: The shelf.
        name: The name on it.
        value: The new value; `None` removes the entry.
        known: The tag that must stand there, `ABSENT` for no entry; `None` for whatever stands there.
        at: The place in the order of the shelf; `None` for that before, or for none, so that a new entry is
            not among `names`.
        ttl: Seconds for which the entry is kept from now on; `None` for as long as before, or for ever.
        max_entries: The largest number of entries in order; above it, the first ones are removed.
        tag: The tag of the new value; one is made unless it is given.
    """

    shelf: str
    name: str
    value: bytes | None
    known: int | None = None
    at: int | None = None
    ttl: float | None = None
    max_entries: int | None = None
    tag: int = 0


class Store(ABC):
    """A place for state: `MemoryStore`, `FileStore`, `RedisStore`, `PostgresStore`; `store_at` makes one.

    It is entered before it is used, and left when it is not used any more; several users of one object may
    enter it. A step that fails raises `StoreError`.

    Attributes:
        name: Its name in errors and the log, which models may read: no address, no password.
        own: The id of this user of the store, unique over time; known while it is open.
    """

    name: str
    own: str = ""

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            StoreError: it cannot be used.
        """
        return self

    async def __aexit__(  # noqa: B027
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, once its last user has left."""

    @abstractmethod
    async def get(self, *places: Place) -> Sequence[Entry | None]:
        """The entry at each place."""

    @abstractmethod
    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        """Make changes, if what stands at each place is what is known.

        Args:
            puts: The changes, each of another place.
            synced: True if they survive a power cut, where that takes longer.
            tell: The messages to listeners of the store in the same step.

        Returns:
            `None` if they are made, else what stands at their places.
        """

    @abstractmethod
    async def names(self, shelf: str) -> Sequence[str]:
        """The names of a shelf that are in its order, the last first."""

    @abstractmethod
    async def lives(self, owner: str) -> bool:
        """True if another user of the store has it open, told by its `own`."""

    async def take(self, shelf: str, name: str) -> bytes | None:
        """Remove an entry, and return its value, which nobody else gets."""
        while (entry := (await self.get((shelf, name)))[0]) is not None:
            if await self.write(Put(shelf, name, None, entry.tag)) is None:
                return entry.value
        return None

    async def tokens(
        self, shelf: str, name: str, *, calls: int, per_seconds: float, wanted: int
    ) -> tuple[int, float]:
        """Take up to `wanted` tokens out of a bucket, which begins full and refills evenly.

        Returns:
            How many; if none, the seconds until there is one.
        """
        while True:
            now = time.time()
            [entry] = await self.get((shelf, name))
            left, at = map(float, entry.value.split()) if entry else (calls, now)
            left = min(calls, left + max(0.0, now - at) * calls / per_seconds)
            taken = min(int(left), wanted)
            left -= taken
            value, known = f"{left!r} {now!r}".encode(), entry.tag if entry else ABSENT
            if await self.write(Put(shelf, name, value, known, ttl=per_seconds + 1)) is None:
                return taken, 0.0 if taken else (1 - left) * per_seconds / calls

    async def count(self, shelf: str, name: str, *, max_count: int, ttl: float) -> bool:
        """Count one, unless `max_count` were counted; the count is kept for `ttl` seconds from now on."""
        while True:
            [entry] = await self.get((shelf, name))
            number, known = (int(entry.value), entry.tag) if entry else (0, ABSENT)
            if number >= max_count:
                return False
            put = Put(shelf, name, b"%d" % (number + 1), known, ttl=ttl)
            if await self.write(put) is None:
                return True


class _Row(NamedTuple):
    entry: Entry
    at: int | None
    until: float


class _Shelf:
    """The rows of a shelf by name, and the names of those in its order."""

    __slots__ = ("order", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}
        self.order: list[tuple[int, str]] = []

    def put(self, name: str, row: _Row) -> None:
        before = self.rows.get(name)
        if before is None or before.at != row.at:
            self.remove(name)
            if row.at is not None:
                insort(self.order, (row.at, name))
        self.rows[name] = row

    def remove(self, name: str) -> None:
        row = self.rows.pop(name, None)
        if row is not None and row.at is not None:
            del self.order[bisect_left(self.order, (row.at, name))]

    def trim(self, most: int) -> None:
        """Remove the first entries beyond `most`."""
        beyond = self.order[: max(0, len(self.order) - most)]
        for _, name in beyond:
            del self.rows[name]
        del self.order[: len(beyond)]


class MemoryStore(Store):
    """Entries in this process, for any of its threads. No step waits."""

    name = "the memory of this process"
    own = "1"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._now = clock
        self._shelves: defaultdict[str, _Shelf] = defaultdict(_Shelf)
        self._lock = RLock()
        self._written = 0

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        with self._lock:
            return [None if (row := self._row(*place)) is None else row.entry for place in places]

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        with self._lock:
            standing = [self._row(put.shelf, put.name) for put in puts]
            tags = [ABSENT if row is None else row.entry.tag for row in standing]
            if any(put.known not in (None, tag) for put, tag in zip(puts, tags, strict=True)):
                return [None if row is None else row.entry for row in standing]
            for put, before in zip(puts, standing, strict=True):
                self._put(put, before)
            self._written += 1
            if self._written % 1000 == 0:
                self._forget()
        return None

    async def names(self, shelf: str) -> Sequence[str]:
        with self._lock:
            order = self._shelves[shelf].order if shelf in self._shelves else ()
            return [name for _, name in reversed(order) if self._row(shelf, name) is not None]

    async def lives(self, owner: str) -> bool:
        return owner == self.own

    def _row(self, shelf: str, name: str) -> _Row | None:
        row = self._shelves[shelf].rows.get(name) if shelf in self._shelves else None
        return None if row is None or row.until <= self._now() else row

    def _put(self, put: Put, before: _Row | None) -> None:
        shelf = self._shelves[put.shelf]
        if put.value is None:
            shelf.remove(put.name)
        else:
            at, until = (None, inf) if before is None else (before.at, before.until)
            at = at if put.at is None else put.at
            until = until if put.ttl is None else self._now() + put.ttl
            shelf.put(put.name, _Row(Entry(put.value, put.tag or new_tag()), at, until))
        if put.max_entries is not None:
            shelf.trim(put.max_entries)

    def _forget(self) -> None:
        """Let go of what has ended."""
        now = self._now()
        for name, shelf in list(self._shelves.items()):
            for ended in [one for one, row in shelf.rows.items() if row.until <= now]:
                shelf.remove(ended)
            if not shelf.rows:
                del self._shelves[name]


def at_once(step: Coroutine[Any, Any, _T]) -> _T:
    """The result of a step of a store that never waits, without a loop."""
    try:
        step.send(None)
    except StopIteration as ended:
        return ended.value
    step.close()
    raise AssertionError("a store that answers at once has waited")


StorePlace: TypeAlias = "str | PathLike[str] | Store"
"""The path of a file, a URL such as `redis://host:6379` or `postgresql://host/db`, or a store."""

_REDIS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")
_POSTGRES: Final = ("postgresql", "postgres")


def is_url(place: object) -> TypeGuard[str]:
    """True if a place is a URL; any other text is the path of a file."""
    return isinstance(place, str) and "://" in place


def path_of(place: object) -> Path | None:
    """The path that a place is; `None` for a URL, a store, and what is no place."""
    if is_url(place) or not isinstance(place, str | PathLike):
        return None
    return Path(cast("PathLike[str]", place))


def users_file(name: str) -> Path:
    """The file of a feature in the user's folder for state."""
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / f"{name}.sqlite3"


def store_at(
    place: StorePlace | None, name: str, *, owned: bool = False, clock: Callable[[], float] = time.time
) -> Store:
    """The store at a place, to be entered.

    Args:
        place: Its place; `None` for the memory of this process.
        name: Its name in errors, such as `the journal of calls`; a store that is given has its own.
        owned: True if it has to be told which of its users live.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: there is no such kind of store, the URL cannot be used, or an extra is not installed.
        DefinitionError: it is no place.
    """
    if place is None:
        return MemoryStore(clock)
    if isinstance(place, Store):
        return place
    if (path := path_of(place)) is not None:
        from mcp_toolset.stores.sqlite import FileStore

        return FileStore(path, name, owned=owned, clock=clock)
    if not is_url(place):
        raise DefinitionError(f"{name} is kept at a path, at a URL, or in a Store, not in {place!r}")
    scheme = place.partition("://")[0].lower()
    if scheme in _REDIS:
        from mcp_toolset.stores.redis import RedisStore

        return RedisStore(place, name, owned=owned)
    if scheme in _POSTGRES:
        from mcp_toolset.stores.postgres import PostgresStore

        return PostgresStore(place, name, clock)
    known = ", ".join(f"{one}://" for one in (*_REDIS, *_POSTGRES))
    raise ConfigError(f"the URL of {name} begins with one of {known}; name a file by its path")
