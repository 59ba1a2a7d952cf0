"""Results, the registry's state and one-time names, each in one key of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.connection import Script, StoreConnection

_SWAP: Final = Script("""
local found = redis.call('GET', KEYS[1])
if (found or '') ~= ARGV[2] or (not found and ARGV[3] == '1') or (found and ARGV[3] == '0') then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
""")


class SharedResults:
    """A `CacheStore`: results of calls, which expire."""

    def __init__(self, connection: StoreConnection) -> None:
        self.name = connection.name
        self._connection = connection

    async def load(self, key: str) -> bytes | None:
        return await self._connection.run("GET", self._connection.key("result", key), to="load a result")

    async def save(self, key: str, value: bytes, *, seconds: float) -> None:
        place = self._connection.key("result", key)
        await self._connection.run("SET", place, value, "PX", max(1, int(seconds * 1000)), to="save a result")


class SharedRegistryState:
    """A `FollowedStore`: the names and members of a registry, saved by compare-and-set."""

    def __init__(self, connection: StoreConnection, topics: Topics, service: str) -> None:
        """Use a connection; `service` tells the servers of a namespace apart."""
        self.name = connection.name
        self._connection = connection
        self._topics = topics
        self._key = connection.key("registry", hashed(service))
        self._topic = f"registry {hashed(service)}"

    async def load(self) -> str | None:
        """The state that was saved last."""
        found = await self._connection.run("GET", self._key, to="load the names of tools")
        return None if found is None else found.decode()

    async def save(self, text: str, before: str | None) -> bool:
        """Save a state if nothing else was saved since `before`."""
        known = "0" if before is None else "1"
        return bool(
            await self._connection.script(
                _SWAP,
                (self._key,),
                text,
                before or "",
                known,
                self._topics.channel(),
                f"{self._topic}\n",
                to="save the names of tools",
            )
        )

    def on_save(self, told: Callable[[], object]) -> Callable[[], None]:
        """Call `told` whenever a replica has saved, or may have while this one did not hear."""
        stops = (
            self._topics.subscribe(self._topic, lambda message: told()),
            self._topics.on_change(lambda current: told() if current else None),
        )

        def stop() -> None:
            for each in stops:
                each()

        return stop


class UsedOnce:
    """Names that may be used once, such as the ids of request states."""

    def __init__(self, connection: StoreConnection, kind: str) -> None:
        """Use a connection; names of another kind are other names."""
        self._connection = connection
        self._kind = kind

    async def use(self, name: str, *, seconds: float) -> bool:
        """Use a name; `False` if it was used in the last `seconds`."""
        place = self._connection.key("used", self._kind, name)
        words = ("SET", place, b"", "NX", "PX", max(1, int(seconds * 1000)))
        return await self._connection.run(*words, to="see whether it was used") is not None

    async def was_used(self, name: str) -> bool:
        place = self._connection.key("used", self._kind, name)
        return bool(await self._connection.run("EXISTS", place, to="see whether it was used"))

    async def free(self, name: str) -> None:
        """Let a name be used again."""
        await self._connection.run("DEL", self._connection.key("used", self._kind, name), to="free a place")


class PutAside:
    """Data that one replica puts aside, and others read, or one of them takes."""

    def __init__(self, connection: StoreConnection, kind: str) -> None:
        """Use a connection; names of another kind are other names."""
        self._connection = connection
        self._kind = kind

    async def put(self, name: str, data: bytes, *, seconds: float) -> None:
        place = self._connection.key("kept", self._kind, name)
        await self._connection.run("SET", place, data, "PX", int(seconds * 1000), to=f"keep a {self._kind}")

    async def get(self, name: str) -> bytes | None:
        """Data that stays where it is; `None` if there is none."""
        place = self._connection.key("kept", self._kind, name)
        return await self._connection.run("GET", place, to=f"read a {self._kind}")

    async def take(self, name: str) -> bytes | None:
        """Take data, which nothing else takes then; `None` if there is none."""
        place = self._connection.key("kept", self._kind, name)
        return await self._connection.run("GETDEL", place, to=f"take up a {self._kind}")


def hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
