"""`SharedLimits`: the rates and counts of replicas, in the store that they share."""

from __future__ import annotations

from typing import Final

from mcp_toolset.extensions.limits.rate import TokensTaken
from mcp_toolset.shared.small_stores import hashed
from mcp_toolset.stores.connection import Script, StoreConnection

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
        place = self._connection.key("rate", hashed(key))
        tokens, wait = await self._connection.script(
            _BUCKET, (place,), calls, per_seconds, wanted, to="count a call"
        )
        return TokensTaken(int(tokens), float(wait))

    async def count(self, key: str, *, most: int, seconds: float) -> bool:
        """Count one call, unless `most` were counted."""
        place = self._connection.key("count", hashed(key))
        milliseconds = int(seconds * 1000) + 1000
        return bool(await self._connection.script(_COUNT, (place,), most, milliseconds, to="count a call"))
