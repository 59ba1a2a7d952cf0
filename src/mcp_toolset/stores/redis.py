"""`RedisStore`: entries in one namespace of Redis or Valkey, over a `StoreConnection` with a circuit breaker.

An entry is a hash at `SHELF:NAME`; the order of a shelf is a sorted set at `SHELF`. Each user of an owned
store sends a heartbeat every few seconds. While the Redis server fails, requests fail at once; one request
each second tries whether the server is back.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from hashlib import sha1
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, beside
from mcp_toolset.errors import ConfigError, StoreError
from mcp_toolset.stores.store import Entry, Place, Put, Store, new_tag

REST: Final = 1.0
"""Seconds after a failure until the circuit breaker lets the next request try the store."""

LATE: Final = 2
"""Consecutive timeouts after which the store counts as down."""

REFUSING: Final = 10.0
"""Seconds after a refused request for which the health of the store is `refusing`."""

MAX_CONNECTIONS: Final = 32
"""Connections of one replica; a request waits for a free one within its deadline."""

_SCHEMES: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
_UNUSABLE: Final = (
    "the URL of the shared store cannot be read; write redis://USER:PASSWORD@HOST:PORT/NUMBER, "
    "with %2F for '/' in the password, and so on"
)
"""An error without the text of a library, which would quote a part of the password."""

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_log = logging.getLogger("mcp_toolset.stores")


class Script:
    """A script in Lua, which the store runs as one step."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text  # its source
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()  # its name in the store


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The health of the shared store."""

    state: str  # `ready`, `down`, or `refusing` if it answers and refuses requests, as a full store does
    reason: str  # why it is down or refuses; empty otherwise
    since: float  # seconds since the epoch at which the state began


class StoreConnection:
    """A pool of connections to one store.

    Attributes:
        name: The name of the store in errors, which models read: no address and no password.
        namespace: The prefix of all keys, the same for all servers that share the store.
    """

    name = "the shared store"

    def __init__(self, url: str, *, timeout: float = STORE_TIMEOUT) -> None:
        """Describe the connection; nothing is opened yet.

        Args:
            url: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix://`; `?namespace=` keeps several
                services apart, `mcp-toolset` unless given.
            timeout: Seconds that the store has for one answer.
        """
        address, self.namespace, self._passwords = _parsed(url)
        self._prefix = f"{{{self.namespace}}}:"
        self._timeout = timeout
        self._client = _client(address, timeout)
        self._health = StoreHealth("ready", "", time.time())
        self._refused: StoreHealth | None = None
        self._next_try = 0.0
        self._late = 0

    @property
    def health(self) -> StoreHealth:
        """The present health: of the last answers, or of a request that was refused a moment ago."""
        refused = self._refused
        if self._health.state == "ready" and refused is not None and time.time() - refused.since < REFUSING:
            return refused
        return self._health

    def key(self, *parts: str) -> str:
        """The name of a key; all keys of a namespace are in one slot of a cluster."""
        return self._prefix + ":".join(parts)

    async def run(self, *words: bytes | str | int | float, to: str) -> Any:
        """The answer to one command.

        Args:
            words: The command and its arguments.
            to: The action of the command, for the error and the log.
        """
        return await self._asked(lambda: self._client.execute_command(*words), to)

    async def script(
        self, script: Script, keys: Sequence[str], *arguments: bytes | str | int | float, to: str
    ) -> Any:
        """The answer of a script, which the store runs as one step."""

        async def run() -> Any:
            from redis.exceptions import NoScriptError

            words = (len(keys), *keys, *arguments)
            try:
                return await self._client.execute_command("EVALSHA", script.digest, *words)
            except NoScriptError:
                return await self._client.execute_command("EVAL", script.text, *words)

        return await self._asked(run, to)

    def listener(self) -> Any:
        """A separate connection, which receives published messages."""
        return self._client.pubsub(ignore_subscribe_messages=True)

    async def aclose(self) -> None:
        with anyio.move_on_after(self._timeout, shield=True):
            await self._client.aclose()

    async def _asked(self, ask: Any, to: str) -> Any:
        """The answer of `ask`, within the timeout and the circuit breaker; `StoreError` without an answer."""
        from redis.exceptions import ReadOnlyError, RedisError, ResponseError

        self._require_turn(to)
        try:
            with anyio.fail_after(self._timeout):
                answer = await ask()
        except TimeoutError:
            self._late += 1
            if self._late < LATE:
                # A single timeout may be the fault of this process, which was too busy to read the answer.
                raise self._error(to) from None
            raise self._failed(f"no answer within {self._timeout:g} s", to) from None
        except ResponseError as fault:
            if isinstance(fault, ReadOnlyError):
                # Another server is the primary now, so new connections are needed.
                await self._client.connection_pool.disconnect(inuse_connections=False)
            raise self._was_refused(self._reason(fault), to) from fault
        except (RedisError, OSError) as fault:
            raise self._failed(self._reason(fault), to) from fault
        self._late = 0
        if self._health.state != "ready":
            _log.warning("%s answers again", self.name)
            self._health = StoreHealth("ready", "", time.time())
        return answer

    def _require_turn(self, to: str) -> None:
        """Let a request pass: any while the store answers, one each `REST` while it does not."""
        if self._health.state == "ready":
            return
        now = time.monotonic()
        if now < self._next_try:
            raise self._error(to)
        self._next_try = now + REST

    def _reason(self, fault: Exception) -> str:
        """The text of an error, without the password: stores repeat commands that they do not know."""
        reason = str(fault) or type(fault).__name__
        for password in self._passwords:
            reason = reason.replace(password, "***")
        return reason

    def _failed(self, reason: str, to: str) -> StoreError:
        """The error for a request that the store did not answer; the circuit breaker opens."""
        self._next_try = time.monotonic() + REST
        if self._health.state == "ready":
            _log.error("%s: %s (it could not %s)", self.name, reason, to)
            self._health = StoreHealth("down", reason, time.time())
        return self._error(to)

    def _was_refused(self, reason: str, to: str) -> StoreError:
        """The error for a request that the store has answered with an error; other requests may work."""
        if self.health.state == "ready":
            _log.error("%s: %s (it could not %s)", self.name, reason, to)
        self._refused = StoreHealth("refusing", reason, time.time())
        return self._error(to)

    def _error(self, to: str) -> StoreError:
        mend = "check that it runs, or try again later"
        return StoreError(f"{self.name} cannot be used now, so it could not {to}; {mend}")


def _parsed(url: str) -> tuple[str, str, list[str]]:
    """The address for the client, the namespace, and the passwords in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(_UNUSABLE) from None
    shown = f"{parts.scheme}://…" if parts.scheme else "it"
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        why = f"the URL of the shared store begins with one of {known}, and {shown} does not"
        raise ConfigError(f"{why}; write redis://HOST:6379")
    query = parse_qs(parts.query)
    namespace = query.pop("namespace", ["mcp-toolset"])[-1]
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError("the namespace of the shared store has 1 to 64 letters, digits, '_', '.', '-'")
    rest = "&".join(f"{name}={each}" for name, values in query.items() for each in values)
    secrets = [one for one in (parts.password, *query.get("password", ())) if one]
    passwords = sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True)
    return urlunsplit((scheme, parts.netloc, parts.path, rest, "")), namespace, passwords


def _client(address: str, timeout: float) -> Any:
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError("a shared store needs the extra: pip install 'mcp-toolset[redis]'") from None
    try:
        pool = cast("Any", BlockingConnectionPool).from_url(
            address,
            max_connections=MAX_CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 1),
        )
    except (ValueError, TypeError):
        raise ConfigError(_UNUSABLE) from None
    return cast("Any", Redis).from_pool(pool)


ALIVE: Final = 15.0
"""Seconds for which a user of the store counts as alive after a heartbeat."""

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
            name: The name of the store in errors; `the shared store` unless given.
            owned: True if this user sends heartbeats, so that others know whether it is alive.

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
        """Open the store; if it is owned, send heartbeats from now on.

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
                        await self._beat()
                        await stack.enter_async_context(beside(self._keep_beating, last=self._leave))
                    self._open = stack.pop_all()
            except BaseException:
                self._users -= 1
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store, and end the heartbeats, once the last user has left."""
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
            life = "" if put.ttl is None else max(1, int(put.ttl * 1000))
            at, most = ("" if one is None else one for one in (put.at, put.max_entries))
            tag = "" if put.value is None else put.tag or new_tag()
            order = self.connection.key(put.shelf)
            words += [tag, order, put.name, put.value or b"", known, at, life, most]
        outcome = await self.connection.script(_WRITE, keys, *words, tell, to="write what it keeps")
        return None if outcome is None else _entries(outcome)

    async def names(self, shelf: str) -> Sequence[str]:
        order = self.connection.key(shelf)
        return [
            name.decode() for name in await self.connection.script(_NAMES, (order,), to="read what it keeps")
        ]

    async def lives(self, owner: str) -> bool:
        return bool(await self.connection.run("EXISTS", self._heartbeat_key(owner), to="see who lives"))

    async def tokens(
        self, shelf: str, name: str, *, calls: int, per_seconds: float, wanted: int
    ) -> tuple[int, float]:
        """Take tokens, by the clock of the store."""
        key = self.connection.key(shelf, name)
        taken, wait = await self.connection.script(
            _TOKENS, (key,), calls, per_seconds, wanted, to="count a call"
        )
        return int(taken), float(wait)

    async def count(self, shelf: str, name: str, *, max_count: int, ttl: float) -> bool:
        key = self.connection.key(shelf, name)
        return bool(
            await self.connection.script(_COUNT, (key,), max_count, int(ttl * 1000), to="count a call")
        )

    def _heartbeat_key(self, owner: str) -> str:
        return self.connection.key("owner", owner)

    async def _beat(self) -> None:
        words = (self._heartbeat_key(self.own), "1", "PX", int(ALIVE * 1000))
        await self.connection.run("SET", *words, to="say that this process lives")

    async def _keep_beating(self) -> None:
        while True:
            await anyio.sleep(ALIVE / 3)
            try:
                await self._beat()
            except StoreError:
                # The connection has logged it. Meanwhile this user counts as dead.
                continue

    async def _leave(self) -> None:
        try:
            await self.connection.run("DEL", self._heartbeat_key(self.own), to="leave the store")
        except StoreError:
            # The connection has logged it; the key of this user expires by itself.
            return


def _entries(rows: Sequence[Any]) -> list[Entry | None]:
    return [Entry(row[0], int(row[1])) if row else None for row in rows]
