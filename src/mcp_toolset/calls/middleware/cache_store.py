"""`CacheStore`: results that several processes share, for `ResultCache`."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, cast, runtime_checkable

from mcp_toolset.concurrency.asked_store import answer_of
from mcp_toolset.errors import InvalidOutputError, StoreError
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.result_shape import checked_result

REST: Final = 10.0
"""Seconds in which a store that has failed is not asked again: each call would wait for it in vain."""

_log = logging.getLogger("mcp_toolset.stores")


@runtime_checkable
class CacheStore(Protocol):
    """Bytes by key, which expire, in a place that several processes share.

    Attributes:
        name: The name of the store in the log.
    """

    name: str

    async def load(self, key: str) -> bytes | None:
        """What was saved under a key, unless it has expired or was forgotten."""
        ...

    async def save(self, key: str, value: bytes, *, seconds: float) -> None:
        """Keep a value for so many seconds at most."""
        ...


class SharedResults:
    """Results of calls in a store. A store that fails is a cache without entries: the tool runs."""

    def __init__(
        self,
        store: CacheStore,
        *,
        timeout: float,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Give the store `timeout` seconds for an answer.

        Args:
            store: The store.
            timeout: Seconds.
            now: The time in seconds, from a monotonic clock.
            wall: Seconds since the epoch, by which processes agree on when a result expires.
        """
        self._store = store
        self._timeout = timeout
        self._now = now
        self._wall = wall
        self._rests_until = float("-inf")

    async def load(self, key: tuple[str, ...], ttl: float) -> tuple[float, ToolResult] | None:
        """A result and the seconds for which it is still good."""
        found = await self._asked(lambda: self._store.load(_name_of(key)), "load a result")
        if found is None:
            return None
        try:
            ends, result = _read(found)
        except (ValueError, KeyError, TypeError, InvalidOutputError) as fault:
            _log.warning("%s: a result in it cannot be read: %s", self._store.name, fault)
            return None
        left = min(ttl, ends - self._wall())
        return (left, result) if left > 0 else None

    async def save(self, key: tuple[str, ...], result: ToolResult, ttl: float) -> None:
        """Keep a result, if it is nothing but what crosses a wire."""
        if result.halt is not None or result.ask is not None or result.unstructured:
            return
        try:
            value = json.dumps({"ends": self._wall() + ttl, "result": dict(result.wire)}).encode()
        except (TypeError, ValueError):
            return
        await self._asked(lambda: self._store.save(_name_of(key), value, seconds=ttl), "save a result")

    async def _asked(self, ask: Callable[[], Any], to: str) -> Any:
        if self._now() < self._rests_until:
            return None
        try:
            return await answer_of(self._store.name, ask(), within=self._timeout, to=to)
        except StoreError:
            self._rests_until = self._now() + REST
            return None


def _read(value: bytes) -> tuple[float, ToolResult]:
    data = cast("dict[str, Any]", json.loads(value))
    return float(data["ends"]), checked_result(ToolResult(dict(data["result"])), "a cached result")


def _name_of(key: tuple[str, ...]) -> str:
    """The key of a result in the store: a hash, as it tells of a caller and of arguments."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()
