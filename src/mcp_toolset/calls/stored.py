"""`StoredNames`: names that are used once, and data that is put aside, in a `Store`; `kept_keys`."""

from __future__ import annotations

from secrets import token_bytes

from mcp_toolset._records import dataclass
from mcp_toolset.security.secrets.key_ring import KEY_BYTES, KeyRing
from mcp_toolset.stores.store import ABSENT, Put, Store


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Names on one shelf: they are used once by all replicas, or have data that one of them puts aside."""

    store: Store
    shelf: str

    async def use(self, name: str, *, seconds: float) -> bool:
        """Use a name; `False` if it was used in the last `seconds`."""
        return await self.store.write(Put(self.shelf, name, b"", ABSENT, seconds=seconds)) is None

    async def was_used(self, name: str) -> bool:
        return await self.get(name) is not None

    async def free(self, name: str) -> None:
        """Let a name be used again."""
        await self.store.write(Put(self.shelf, name, None))

    async def put(self, name: str, data: bytes, *, seconds: float) -> None:
        await self.store.write(Put(self.shelf, name, data, seconds=seconds))

    async def get(self, name: str) -> bytes | None:
        """Data that stays where it is; `None` if there is none."""
        [found] = await self.store.get((self.shelf, name))
        return None if found is None else found.value

    async def take(self, name: str) -> bytes | None:
        """Take data, which nothing else takes then; `None` if there is none."""
        return await self.store.take(self.shelf, name)


async def kept_keys(store: Store) -> KeyRing:
    """The key of all who use a store; the first one makes it."""
    key = token_bytes(KEY_BYTES)
    standing = await store.write(Put("key", "", key, ABSENT))
    return KeyRing((key if standing is None or standing[0] is None else standing[0].value,))
