"""`RedisJournal`: a journal that the replicas of a server share, in Redis or Valkey.

A replica says every few seconds that it lives. The outcome of a call of a replica that has not said so is not
known; no call runs again for it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import anyio

from mcp_toolset.concurrency.task_set import beside
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.journal.journal_store import (
    DAY,
    LIFETIME,
    Found,
    Intent,
    Outcome,
    Record,
    standing_of,
)
from mcp_toolset.shared.connection import Script, StoreConnection

__all__ = ["RedisJournal"]

ALIVE: Final = 15.0
"""Seconds for which a replica counts as living after it has said so."""

_FIELDS: Final = "'intent', 'attempt', 'state', 'owner', 'began', 'ended', 'outcome', 'note'"

_ROW: Final = f"""
local function row(key, owners)
  local found = redis.call('HMGET', key, {_FIELDS})
  found[9] = redis.call('EXISTS', owners .. found[4])
  return found
end
"""

_BEGIN: Final = Script(
    _ROW
    + """
local call, index, owners, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local now, oldest, life = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local began = redis.call('HGET', call, 'began')
if began then
  local found = row(call, owners)
  if tonumber(began) >= oldest or (found[3] == 'begun' and found[9] == 1) then return found end
end
redis.call('DEL', call)
redis.call('HSET', call, 'intent', ARGV[3], 'attempt', 1, 'state', 'begun', 'owner', ARGV[4],
  'began', now, 'ended', 0, 'outcome', '', 'note', '')
redis.call('PEXPIRE', call, life)
redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. oldest)
redis.call('ZADD', index, now, id)
return false
"""
)

_FIND: Final = Script(
    _ROW
    + """
local began = redis.call('HGET', KEYS[1], 'began')
if not began then return false end
local found = row(KEYS[1], ARGV[1])
if tonumber(began) >= tonumber(ARGV[2]) or (found[3] == 'begun' and found[9] == 1) then return found end
return false
"""
)

_AGAIN: Final = Script("""
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[1], 'attempt', 1)
redis.call('HSET', KEYS[1], 'intent', ARGV[6], 'state', 'begun', 'owner', ARGV[2], 'began', ARGV[3],
  'ended', 0)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[5])
return 1
""")

_END: Final = Script("""
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'ended', ARGV[3], 'outcome', ARGV[4], 'note', ARGV[5])
return 1
""")

_RELEASE: Final = Script("""
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return 0 end
redis.call('ZREM', KEYS[2], ARGV[2])
return redis.call('DEL', KEYS[1])
""")

_RECORDS: Final = Script(
    _ROW
    + """
local found, prefix, most = {}, ARGV[4], tonumber(ARGV[5])
for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', ARGV[3])) do
  if #found >= most then break end
  if string.sub(id, 1, #prefix) == prefix then
    local state = redis.call('HGET', ARGV[2] .. id, 'state')
    if state and state ~= ARGV[6] then table.insert(found, row(ARGV[2] .. id, ARGV[1])) end
  end
end
return found
"""
)

_SETTLE: Final = Script("""
local found = redis.call('HMGET', KEYS[1], 'state', 'owner')
if not found[1] then return 0 end
if found[1] == 'begun' and redis.call('EXISTS', ARGV[1] .. found[2]) == 1 then return 0 end
if ARGV[3] == 'never' then
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'state', 'done', 'ended', ARGV[4], 'outcome', '', 'note', ARGV[5])
end
return 1
""")


class RedisJournal:
    """A journal in one namespace of a store."""

    name = "the shared journal of calls"

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
        self._connection = StoreConnection(store) if isinstance(store, str) else store
        self._is_own = isinstance(store, str)
        self._lifetime = lifetime
        self._kept = int(max(lifetime, DAY) * 1000)
        self._now = now
        self._owner = secrets.token_hex(12)
        self._index = self._connection.key("journal")
        self._calls = self._connection.key("journal-call", "")
        self._owners = self._connection.key("journal-owner", "")
        self._open: AsyncExitStack | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        """Say from now on that this process lives.

        Raises:
            StoreError: the store is down.
        """
        self._users += 1
        if self._open is None:
            async with AsyncExitStack() as stack:
                if self._is_own:
                    stack.push_async_callback(self._connection.aclose)
                await self._say()
                await stack.enter_async_context(beside(self._living, last=self._leave))
                self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say so no more, once the last user has left."""
        self._users -= 1
        if self._users == 0 and self._open is not None:
            stack, self._open = self._open, None
            await stack.__aexit__(kind, fault, trace)

    async def begin(self, intent: Intent) -> Found | None:
        """See `JournalStore`."""
        now = self._now()
        row = await self._script(
            _BEGIN,
            intent.id,
            self._owners,
            intent.id,
            json.dumps(intent),
            self._owner,
            repr(now),
            repr(now - self._lifetime),
            self._kept,
        )
        return None if row is None else _found(row)

    async def find(self, id: str) -> Found | None:
        """See `JournalStore`."""
        row = await self._script(_FIND, id, self._owners, repr(self._now() - self._lifetime))
        return None if row is None else _found(row)

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """See `JournalStore`."""
        words = (attempt, self._owner, repr(self._now()), self._kept, intent.id, json.dumps(intent))
        return bool(await self._script(_AGAIN, intent.id, *words))

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        """See `JournalStore`."""
        words = (attempt, outcome.state, repr(self._now()), outcome.sealed or b"", outcome.note)
        await self._script(_END, id, *words)

    async def release(self, id: str, attempt: int) -> None:
        """See `JournalStore`."""
        await self._script(_RELEASE, id, attempt, id)

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """See `JournalStore`."""
        oldest = repr(self._now() - self._lifetime)
        words = (self._owners, self._calls, oldest, prefix, limit, "done" if undone else "")
        rows = await self._connection.script(_RECORDS, (self._index,), *words, to="list the calls")
        return [_found(row) for row in rows]

    async def settle(self, id: str, note: str | None) -> bool:
        """See `JournalStore`."""
        how = "never" if note is None else "done"
        return bool(await self._script(_SETTLE, id, self._owners, id, how, repr(self._now()), note or ""))

    async def _script(self, script: Script, id: str, *words: bytes | str | int | float) -> Any:
        keys = (self._calls + id, self._index)
        return await self._connection.script(script, keys, *words, to="record a call")

    async def _say(self) -> None:
        words = (self._owners + self._owner, "1", "PX", int(ALIVE * 1000))
        await self._connection.run("SET", *words, to="say that this process lives")

    async def _living(self) -> None:
        while True:
            await anyio.sleep(ALIVE / 3)
            try:
                await self._say()
            except StoreError:
                # Logged by the connection. Others take the calls of this process for unknown meanwhile.
                continue

    async def _leave(self) -> None:
        try:
            await self._connection.run("DEL", self._owners + self._owner, to="leave the journal")
        except StoreError:
            # Logged by the connection; the store forgets this process by itself.
            return


def _found(row: Sequence[Any]) -> Found:
    intent, attempt, state, owner, began, ended, outcome, note, lives = row
    kept: Any = state.decode()
    record = Record(
        Intent(*json.loads(intent)),
        int(attempt),
        kept,
        owner.decode(),
        float(began),
        float(ended),
        outcome or None,
        note.decode(),
    )
    return Found(record, standing_of(kept, bool(lives)))
