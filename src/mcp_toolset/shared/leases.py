"""`Leases`: what only one replica may own at a time, until it says so no more."""

from __future__ import annotations

from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.connection import Script, StoreConnection

_TAKE = Script("""
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[1] then return 0 end
if not holder then
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'token', redis.call('INCR', KEYS[2]))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'token'))
""")

_RELEASE = Script("""
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""")


class Leases:
    """The leases of one namespace."""

    def __init__(self, connection: StoreConnection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics

    async def take(self, name: str, *, seconds: float) -> int:
        """Take a lease, or renew it; its number, which grows with each new holder, or 0 if another has it."""
        keys = (self._connection.key("lease", name), self._connection.key("lease-number", name))
        return await self._connection.script(
            _TAKE, keys, self._topics.replica, int(seconds * 1000), to=f"take the lease of {_shown(name)}"
        )

    async def release(self, name: str) -> None:
        """Give a lease back, if this replica has it."""
        key = self._connection.key("lease", name)
        await self._connection.script(
            _RELEASE, (key,), self._topics.replica, to=f"release the lease of {_shown(name)}"
        )

    async def holder(self, name: str) -> str:
        """The replica that has a lease; empty if none has."""
        key = self._connection.key("lease", name)
        found = await self._connection.run("HGET", key, "holder", to=f"find the holder of {_shown(name)}")
        return found.decode() if found else ""


def _shown(name: str) -> str:
    """The name of a lease for messages, without the digest at its end."""
    return name.rpartition(" ")[0] or name
