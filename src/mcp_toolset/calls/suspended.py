"""Calls that wait for an answer, as values that another process can go on with: store and seal."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import RequestStateError
from mcp_toolset.security.key_ring import KEY_BYTES, KeyRing
from mcp_toolset.stores.store import ABSENT, Put, Store, StorePlace, store_at

SUSPENDED_TTL: Final = 86_400.0  # Seconds for which a call that waits for an answer is kept.


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Names on one shelf: they are used once by all replicas, or have data that one of them puts aside."""

    store: Store
    shelf: str

    async def use(self, name: str, *, ttl: float) -> bool:
        """Use a name; `False` if it was used in the last `ttl` seconds."""
        return await self.store.write(Put(self.shelf, name, b"", ABSENT, ttl=ttl)) is None

    async def was_used(self, name: str) -> bool:
        return await self.get(name) is not None

    async def free(self, name: str) -> None:
        """Let a name be used again."""
        await self.store.write(Put(self.shelf, name, None))

    async def put(self, name: str, data: bytes, *, ttl: float) -> None:
        await self.store.write(Put(self.shelf, name, data, ttl=ttl))

    async def get(self, name: str) -> bytes | None:
        """Data that stays where it is; `None` if there is none."""
        [entry] = await self.store.get((self.shelf, name))
        return None if entry is None else entry.value

    async def take(self, name: str) -> bytes | None:
        """Take data, which nothing else takes then; `None` if there is none."""
        return await self.store.take(self.shelf, name)


class SuspendedStore:
    """The store of suspended calls, and the key ring that seals them.

    Attributes:
        keys: Seals them; known while the store is open.
        ttl: Seconds for which a call that waits for an answer is kept.
    """

    keys: KeyRing

    def __init__(
        self,
        place: StorePlace | None,
        *,
        keys: KeyRing | None = None,
        ttl: float = SUSPENDED_TTL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use a store.

        Args:
            place: The store, or where it is; memory unless given.
            keys: Seals the calls. Unless given, the first one who opens the store makes a key and keeps it
                there.
            ttl: Seconds for which a call that waits for an answer is kept.
            clock: Seconds since the epoch.
        """
        self._store = store_at(place, "the store of suspended calls", clock=clock)
        self._given = keys
        self._label = ""
        self.ttl = ttl

    def within(self, label: str) -> SuspendedStore:
        """The part of this store for a part of the program: neither reads what the other one keeps."""
        part = SuspendedStore(self._store, keys=self._given, ttl=self.ttl)
        part._label = f"{self._label} {label}"
        return part

    def with_ttl(self, ttl: float) -> SuspendedStore:
        """The same store, where calls are kept for another time."""
        return SuspendedStore(self._store, keys=self._given, ttl=ttl)

    def used(self, kind: str) -> StoredNames:
        return StoredNames(self._store, f"used {kind}{self._label}")

    def kept(self, kind: str) -> StoredNames:
        """Data that is put aside."""
        return StoredNames(self._store, f"kept {kind}{self._label}")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the store for the length of a block; several users of one object may do so.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        async with self._store:
            keys = self._given or await self._kept_keys()
            self.keys = keys.within(self._label) if self._label else keys
            yield

    async def _kept_keys(self) -> KeyRing:
        key = secrets.token_bytes(KEY_BYTES)
        standing = await self._store.write(Put("key", "", key, ABSENT))
        return KeyRing((key if standing is None or standing[0] is None else standing[0].value,))


FORMAT: Final = 1  # The version of the format.

_MARK: Final = "mt"


@dataclass(frozen=True, slots=True)
class Suspended:
    """A suspended call, as long as it can be used; `issued` and `until` are seconds since the epoch."""

    id: str
    issued: float
    until: float
    tools: Mapping[str, str]  # The digests of the definitions that it depends on, by the names of the tools.
    data: Any  # Data to go on with, as JSON.


class Sealer:
    """Seals suspended calls of one kind."""

    def __init__(
        self,
        kind: str,
        keys: Callable[[], KeyRing],
        *,
        mend: str = "call the tool again",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Seal with the first of `keys`, open with any; `mend` is for a caller whose text is refused."""
        self._kind = kind
        self._keys = keys
        self._mend = mend
        self._now = clock

    def is_own(self, token: str) -> bool:
        """True if a text was sealed with one of these keys; it may have been altered since."""
        mark, dot, _ = token.partition(".")
        return bool(dot) and mark.startswith(_MARK) and mark[len(_MARK) :] in self._keys().marks(self._kind)

    def seal(
        self, data: Any, *, who: str | None, what: str, ttl: float, tools: Mapping[str, str] | None = None
    ) -> str:
        """Seal a call for `ttl` seconds.

        `data` is what is needed to go on, as JSON. The text opens for the principal `who` and the call with
        the digest `what` (`digest_of`) alone; `tools` are the digests of definitions, by the tools' names.
        """
        now = self._now()
        value = {
            "v": FORMAT,
            "id": secrets.token_hex(8),
            "issued": now,
            "until": now + ttl,
            "who": digest_of(who),
            "what": what,
            "tools": dict(tools or {}),
            "data": data,
        }
        keys = self._keys()
        sealed = keys.seal(self._kind, json.dumps(value, separators=(",", ":")).encode())
        return f"{_MARK}{keys.marks(self._kind)[0]}.{sealed}"

    def open(self, token: str, *, who: str | None, what: str) -> Suspended:
        if not self.is_own(token):
            raise self.refused("it is none of this server's, or the key that sealed it is gone")
        data = self._keys().open(self._kind, token.partition(".")[2])
        if data is None:
            raise self.refused("it was altered")
        value: dict[str, Any] = json.loads(data)
        if value.get("v") != FORMAT:
            raise self.refused("another version of this server has made it")
        if value["who"] != digest_of(who):
            raise self.refused("it belongs to another caller")
        if value["what"] != what:
            raise self.refused("it belongs to another call, by its name or arguments")
        if self._now() > value["until"]:
            raise self.refused(f"it came too late, and was due within {value['until'] - value['issued']:g} s")
        return Suspended(value["id"], value["issued"], value["until"], value["tools"], value["data"])

    def refused(self, why: str) -> RequestStateError:
        """The error for a text that cannot be used."""
        return RequestStateError(f"the {self._kind} cannot be used: {why}; {self._mend}")

    def require_same(self, suspended: Suspended, tools: Mapping[str, str]) -> None:
        """Raise `RequestStateError` if a tool's definition has changed since the call was suspended."""
        changed = [name for name, digest in suspended.tools.items() if tools.get(name) != digest]
        if changed:
            names = ", ".join(sorted(changed))
            raise self.refused(f"the definition of {names} has changed since")


def digest_of(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()
