"""`StoreConnection`: the connection to Redis or Valkey that every shared store uses, with a circuit breaker.

While the store fails, requests fail at once; one request a second tries whether the store is back.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT
from mcp_toolset.errors import ConfigError, StoreError

REST: Final = 1.0
"""Seconds after a failure until the store is tried again."""

LATE: Final = 2
"""Requests without an answer in time, one after the other, from which on the store counts as down."""

REFUSING: Final = 10.0
"""Seconds for which a refused request counts for the health of the store."""

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
"""Without a text of a library, which would quote a part of the password."""

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_log = logging.getLogger("mcp_toolset.stores")


class Script:
    """A script in Lua, which the store runs as one step."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text  # its source
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()  # what the store knows it by


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
        namespace: What the servers that share the store have in common.
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
        """True if the store answers requests now."""
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
            to: What the command does, for the error and the log.
        """
        return await self._asked(lambda: self._client.execute_command(*words), to)

    async def script(
        self, script: Script, keys: Sequence[str], *arguments: bytes | str | int | float, to: str
    ) -> Any:
        """The answer of a script, which nothing else comes between."""

        async def run() -> Any:
            from redis.exceptions import NoScriptError

            words = (len(keys), *keys, *arguments)
            try:
                return await self._client.execute_command("EVALSHA", script.digest, *words)
            except NoScriptError:
                return await self._client.execute_command("EVAL", script.text, *words)

        return await self._asked(run, to)

    def listener(self) -> Any:
        """A connection of its own that hears what is published."""
        return self._client.pubsub(ignore_subscribe_messages=True)

    async def aclose(self) -> None:
        with anyio.move_on_after(self._timeout, shield=True):
            await self._client.aclose()

    async def _asked(self, ask: Any, to: str) -> Any:
        from redis.exceptions import ReadOnlyError, RedisError, ResponseError

        self._require_turn(to)
        try:
            with anyio.fail_after(self._timeout):
                answer = await ask()
        except TimeoutError:
            self._late += 1
            if self._late < LATE:
                # One alone may be the fault of this process, which was too busy to read the answer.
                raise self._error(to) from None
            raise self._failed(f"no answer within {self._timeout:g} s", to) from None
        except ResponseError as fault:
            if isinstance(fault, ReadOnlyError):
                # The primary is another server by now: connections are made anew.
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
