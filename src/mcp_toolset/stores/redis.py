"""`RedisStore`: entries in one namespace of Redis or Valkey, for processes of several machines.

An entry is a hash at `SHELF:NAME`, and the order of a shelf a sorted set at `SHELF`. Each user of a store
that is owned says every few seconds that it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, Self

import anyio

from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.errors import StoreError
from mcp_toolset.stores.connection import Script, StoreConnection
from mcp_toolset.stores.store import Entry, Place, Put, Store, new_tag

ALIVE: Final = 15.0
"""Seconds for which a user of the store counts as living after it has said so."""

_GET: Final = Script("""
local found = {}
for i, key in ipairs(KEYS) do
  local one = redis.call('HMGET', key, 'value', 'tag')
  found[i] = one[1] and one or false
end
return found
""")

_WRITE: Final = Script("""
local found, stands = {}, true
for i, key in ipairs(KEYS) do
  local one = redis.call('HMGET', key, 'value', 'tag')
  local known = ARGV[(i - 1) * 8 + 6]
  if known ~= '' and known ~= (one[2] or '0') then stands = false end
  found[i] = one[1] and one or false
end
if not stands then return found end
for i, key in ipairs(KEYS) do
  local n = (i - 1) * 8 + 2
  local order, name, value, tag, known = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n], ARGV[n + 4]
  local at, life, most = ARGV[n + 5], ARGV[n + 6], ARGV[n + 7]
  if tag == '' then
    redis.call('DEL', key)
    redis.call('ZREM', order, name)
  else
    redis.call('HSET', key, 'value', value, 'tag', tag)
    if life ~= '' then redis.call('PEXPIRE', key, life) end
    local left = redis.call('PTTL', order)
    if at ~= '' then
      redis.call('ZADD', order, at, name)
    elseif not found[i] then
      redis.call('ZREM', order, name)
    end
    if at ~= '' or (life ~= '' and redis.call('ZSCORE', order, name)) then
      -- The order lives as long as its last entry; entries that have ended leave it from its beginning on.
      local lives = redis.call('PTTL', key)
      if lives < 0 then
        redis.call('PERSIST', order)
      elseif left == -2 or (left >= 0 and left < lives) then
        redis.call('PEXPIRE', order, lives)
      end
      for _, old in ipairs(redis.call('ZRANGE', order, 0, 1)) do
        if redis.call('EXISTS', order .. ':' .. old) == 0 then redis.call('ZREM', order, old) end
      end
    end
  end
  if most ~= '' then
    for _, old in ipairs(redis.call('ZRANGE', order, 0, -1 - tonumber(most))) do
      redis.call('DEL', order .. ':' .. old)
      redis.call('ZREM', order, old)
    end
  end
end
if ARGV[#ARGV] ~= '' then redis.call('PUBLISH', ARGV[1], ARGV[#ARGV]) end
return nil
""")

_NAMES: Final = Script("""
local found = {}
for _, name in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, -1)) do
  if redis.call('EXISTS', KEYS[1] .. ':' .. name) == 1 then found[#found + 1] = name end
end
return found
""")

_TOKENS: Final = Script("""
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


class RedisStore(Store):
    """Entries in one namespace; the names of shelves have no colon."""

    def __init__(self, store: str | StoreConnection, name: str = "", *, owned: bool = False) -> None:
        """Use a store.

        Args:
            store: Its URL, as for `SharedState`, or a connection that is not closed here.
            name: What errors call it; `the shared store` unless given.
            owned: Whether it has to be told which of its users live.

        Raises:
            ConfigError: the URL cannot be used, or the extra `redis` is not installed.
        """
        self._is_ours = isinstance(store, str)
        self.connection = StoreConnection(store) if isinstance(store, str) else store
        self.name = name or self.connection.name
        self._is_owned = owned
        self._users = 0
        self._open: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        """Say that this user lives, from its first entering on.

        Raises:
            StoreError: the store cannot be used.
        """
        self._users += 1
        if self._users == 1:
            try:
                async with AsyncExitStack() as stack:
                    if self._is_ours:
                        stack.push_async_callback(self.connection.aclose)
                    if self._is_owned:
                        self.own = token_hex(12)
                        await self._say()
                        await stack.enter_async_context(beside(self._living, last=self._leave))
                    self._open = stack.pop_all()
            except BaseException:
                self._users -= 1
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say so no more, once the last user has left."""
        self._users -= 1
        if self._users == 0 and self._open is not None:
            stack, self._open = self._open, None
            await stack.__aexit__(kind, fault, trace)

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        keys = [self.connection.key(*place) for place in places]
        return _entries(await self.connection.script(_GET, keys, to="read what it keeps"))

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        keys = [self.connection.key(put.shelf, put.name) for put in puts]
        words: list[bytes | str | int] = [self.connection.key("channel", "")]
        for put in puts:
            known = "" if put.known is None else put.known
            life = "" if put.seconds is None else max(1, int(put.seconds * 1000))
            at, most = ("" if one is None else one for one in (put.at, put.most))
            tag = "" if put.value is None else put.tag or new_tag()
            order = self.connection.key(put.shelf)
            words += [tag, order, put.name, put.value or b"", known, at, life, most]
        found = await self.connection.script(_WRITE, keys, *words, tell, to="write what it keeps")
        return None if found is None else _entries(found)

    async def names(self, shelf: str) -> Sequence[str]:
        order = self.connection.key(shelf)
        return [
            name.decode() for name in await self.connection.script(_NAMES, (order,), to="read what it keeps")
        ]

    async def lives(self, owner: str) -> bool:
        return bool(await self.connection.run("EXISTS", self._owner(owner), to="see who lives"))

    async def tokens(
        self, shelf: str, name: str, *, calls: int, per_seconds: float, wanted: int
    ) -> tuple[int, float]:
        """Take tokens, by the clock of the store."""
        key = self.connection.key(shelf, name)
        taken, wait = await self.connection.script(
            _TOKENS, (key,), calls, per_seconds, wanted, to="count a call"
        )
        return int(taken), float(wait)

    async def count(self, shelf: str, name: str, *, most: int, seconds: float) -> bool:
        key = self.connection.key(shelf, name)
        return bool(
            await self.connection.script(_COUNT, (key,), most, int(seconds * 1000), to="count a call")
        )

    def _owner(self, owner: str) -> str:
        return self.connection.key("owner", owner)

    async def _say(self) -> None:
        words = (self._owner(self.own), "1", "PX", int(ALIVE * 1000))
        await self.connection.run("SET", *words, to="say that this process lives")

    async def _living(self) -> None:
        while True:
            await anyio.sleep(ALIVE / 3)
            try:
                await self._say()
            except StoreError:
                # Logged by the connection. Others take this user for dead meanwhile.
                continue

    async def _leave(self) -> None:
        try:
            await self.connection.run("DEL", self._owner(self.own), to="leave the store")
        except StoreError:
            # Logged by the connection; the store forgets this user by itself.
            return


def _entries(rows: Sequence[Any]) -> list[Entry | None]:
    return [Entry(row[0], int(row[1])) if row else None for row in rows]
