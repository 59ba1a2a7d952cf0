"""Rates, results, the registry's state and one-time names, each in one key of the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from mcp_toolset.calls.middleware.rate import TokensTaken
from mcp_toolset.shared.connection import Script, StoreConnection
from mcp_toolset.shared.topics import Topics

_BUCKET: Final = Script("""
local calls, per, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local found = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = calls
if found[1] then
  tokens = math.min(calls, tonumber(found[1]) + math.max(0, now - tonumber(found[2])) * calls / per)
end
local taken = math.min(math.floor(tokens), wanted)
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(per * 1000) + 1000)
local wait = taken == 0 and (1 - tokens) * per / calls or 0
return {taken, string.format('%.17g', wait)}
""")

_SWAP: Final = Script("""
local found = redis.call('GET', KEYS[1])
if (found or '') ~= ARGV[2] or (not found and ARGV[3] == '1') or (found and ARGV[3] == '0') then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
""")


_COUNT: Final = Script("""
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return 0 end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
""")


class SharedLimits:
    """A `CountStore`: token buckets by the store's clock, and counts of calls."""

    def __init__(self, connection: StoreConnection) -> None:
        self.name = connection.name
        self._connection = connection

    async def take(self, key: str, *, calls: int, per_seconds: float, wanted: int) -> TokensTaken:
        """Take up to `wanted` tokens out of a bucket."""
        place = self._connection.key("rate", _hashed(key))
        tokens, wait = await self._connection.script(
            _BUCKET, (place,), calls, per_seconds, wanted, to="count a call"
        )
        return TokensTaken(int(tokens), float(wait))

    async def count(self, key: str, *, most: int, seconds: float) -> bool:
        """Count one call, unless `most` were counted."""
        place = self._connection.key("count", _hashed(key))
        milliseconds = int(seconds * 1000) + 1000
        return bool(await self._connection.script(_COUNT, (place,), most, milliseconds, to="count a call"))


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
        self._key = connection.key("registry", _hashed(service))
        self._topic = f"registry {_hashed(service)}"

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


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
