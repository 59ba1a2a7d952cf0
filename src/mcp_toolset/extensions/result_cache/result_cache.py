"""`ResultCache`: results are reused for a while, by processes that share a `Store` too."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar, cast

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset.calls.checks import HOST, Recent, caller_of
from mcp_toolset.calls.decision import rejection_reason
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, SingleFlight, answer_of
from mcp_toolset.errors import DefinitionError, InvalidOutputError, StoreError
from mcp_toolset.protocol.eras import ROUND_TRIP
from mcp_toolset.stores.store import Place, Put, Store, hashed
from mcp_toolset.tools.binding import NameUse
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult, checked_result

REST: Final = 10.0
"""Seconds in which a store that has failed is not asked again: each call would wait for it in vain."""

_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.stores")


class StoredResults:
    """Results of calls in a store. A store that fails is a cache without entries: the tool runs."""

    def __init__(
        self,
        store: Store,
        *,
        timeout: float,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Give the store `timeout` seconds for an answer; processes agree on expiry by `wall`, the epoch."""
        self._store = store
        self._timeout = timeout
        self._now = clock
        self._wall = wall
        self._rests_until = float("-inf")

    async def load(self, key: tuple[str, ...], ttl: float) -> tuple[float, ToolResult] | None:
        entry = await self._asked(lambda: self._store.get(_place_of(key)), "load a result")
        if not entry or entry[0] is None:
            return None
        try:
            ends, result = _read(entry[0].value)
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
        put = Put(*_place_of(key), value, ttl=ttl)
        await self._asked(lambda: self._store.write(put, synced=False), "save a result")

    async def _asked(self, ask: Callable[[], Awaitable[_T]], to: str) -> _T | None:
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


def _place_of(key: tuple[str, ...]) -> Place:
    """The place of a result in the store: a hash, as the key tells of a caller and of arguments."""
    return "result", hashed(json.dumps(key))


MAX_ENTRIES: Final = 1000  # the default number of results that are kept
_Key = tuple[str, str, str, str]


class ResultCache:
    """Caches results by tool, definition, caller and arguments; identical concurrent calls run once.

    Without `only`, tools that are annotated read-only are covered, except those annotated as not
    idempotent. Only successes are cached: no errors, no refusals, and no calls that ask for input or answer a
    question. If a tool's definition changes, so does the key.

    A cached result was produced by an earlier call: execution and result hooks, and the middleware inside
    this one, do not run again. So a permission that may expire belongs outside of it.
    """

    def __init__(
        self,
        ttl: float,
        *,
        only: Iterable[str] | None = None,
        shared: bool = False,
        store: Store | None = None,
        store_timeout: float = STORE_TIMEOUT,
        max_entries: int = MAX_ENTRIES,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Cache results for `ttl` seconds.

        Args:
            ttl: Seconds from the end of a run.
            only: Names of the tools to cache, with any annotations (docs/names.md).
            shared: One result for all callers. Otherwise each caller has its own, and callers who cannot be
                told apart (modern protocol, no authentication) are not cached: set it if a server has a
                single client, or if the answer is the same for every caller.
            store: The store in which processes share results, open while it is used. A result that is not in
                this process is looked for there before the tool runs, and saved there before it is handed on.
            store_timeout: Seconds that the store has for an answer. If it fails, the tool runs.
            max_entries: The number of results to keep; the least recently used is dropped first.
            clock: The time in seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive, or `only` is a text instead of a list.
        """
        require_positive("ResultCache", ttl=ttl, max_entries=max_entries, store_timeout=store_timeout)
        if isinstance(only, str):
            raise DefinitionError(f"ResultCache takes a list of names: only=[{only!r}]")
        self._ttl = ttl
        self._only = None if only is None else frozenset(only)
        self._shared = shared
        self._now = clock
        self._kept: Recent[_Key, tuple[float, ToolResult]] = Recent(max_entries)
        self._flights: SingleFlight[_Key] = SingleFlight()
        self._store = None if store is None else StoredResults(store, timeout=store_timeout, clock=clock)

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Answer from the cache, or with the result of an identical call in flight, or run the call."""
        key = self._key(call, context, next)
        if key is None:
            return await next()
        kept = self._fresh(key)
        return await self._run(key, next) if kept is None else kept

    def clear(self) -> None:
        """Remove every result; runs in flight still end, and are cached then."""
        for key in self._kept.keys():
            self._kept.drop(key)

    async def _run(self, key: _Key, next: CallNext) -> ToolResult:
        is_own, is_new, left = False, True, self._ttl

        async def fetch() -> ToolResult:
            nonlocal is_own, is_new, left
            is_own = True
            stored = None if self._store is None else await self._store.load(key, self._ttl)
            if stored is None:
                return await next()
            is_new, (left, result) = False, stored
            return result

        try:
            result = await self._flights.run(key, fetch)
        # The run of another caller may have failed by anything.
        except Exception:
            if is_own or not self._shared:
                raise
            result = None
        if result is None or not is_own:
            return await next() if result is None or self._is_personal(result) else result
        if result.is_complete and not result.is_error:
            self._kept.put(key, (self._now() + left, result))
            if self._store is not None and is_new:
                await self._store.save(key, result, self._ttl)
        return result

    def _fresh(self, key: _Key) -> ToolResult | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        expires, result = kept
        if self._now() < expires:
            return result
        self._kept.drop(key)
        return None

    def _is_personal(self, result: ToolResult) -> bool:
        """True if the result of a run is for its own caller only, so that the other callers need a run."""
        if result.is_error:
            return self._shared or rejection_reason(result) is not None
        return not result.is_complete

    def tool_names(self) -> Iterable[NameUse]:
        """The names in `only`."""
        return [NameUse(name, "ResultCache") for name in sorted(self._only or ())]

    def _key(self, call: ToolCall, context: ToolContext, next: CallNext) -> _Key | None:
        definition, caller = next.definition, HOST if self._shared else caller_of(context)
        if caller is None or not self._covers(next.names, definition):
            return None
        if not ROUND_TRIP.isdisjoint(context.params):
            return None
        try:
            canonical = json.dumps(call.arguments, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError):
            return None
        return call.name, definition.digest, caller, hashlib.sha256(canonical.encode()).hexdigest()

    def _covers(self, names: Iterable[str], definition: ToolDefinition) -> bool:
        if self._only is not None:
            return not self._only.isdisjoint(names)
        return definition.read_only and (definition.annotations or {}).get("idempotentHint") is not False
