"""`RateLimit`: limit the rate of calls by token buckets, which processes may share in a `Store`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Literal, get_args

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset._rule import Rule
from mcp_toolset.calls.checks import MAX_KEPT, Recent, caller_of
from mcp_toolset.calls.decision import Reject, in_tenths, record, rejection, suggesting
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, SingleFlight, answer_of
from mcp_toolset.errors import DefinitionError, StoreError
from mcp_toolset.stores.store import Store, hashed
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult

LEAST_WAIT: Final = 0.1
"""Seconds that a caller is told to wait at least, whatever the store says."""


class LeasedTokens:
    """Tokens that this process has taken in advance. They lapse in the time in which they would come back."""

    def __init__(
        self,
        store: Store,
        calls: int,
        per_seconds: float,
        *,
        lease: int,
        timeout: float,
        limit: int,
        clock: Callable[[], float],
    ) -> None:
        """Take `lease` tokens at a time, and remember the leases of `limit` buckets."""
        self._store = store
        self._calls = calls
        self._per_seconds = per_seconds
        self._lease = lease
        self._timeout = timeout
        self._now = clock
        self._leases: Recent[str, tuple[int, float]] = Recent(limit)  # tokens, and when they lapse
        self._flights: SingleFlight[str] = SingleFlight()

    async def take(self, bucket: str) -> float:
        """Take a token of a bucket; otherwise return the seconds until there is one."""
        while not self._spent(bucket):
            taken = await self._flights.run(bucket, partial(self._ask, bucket))
            if taken[0] < 1:
                return max(taken[1], LEAST_WAIT)
        return 0.0

    def _spent(self, bucket: str) -> bool:
        tokens, ends = self._leases.get(bucket) or (0, 0.0)
        if tokens < 1 or ends <= self._now():
            return False
        self._leases.put(bucket, (tokens - 1, ends))
        return True

    async def _ask(self, bucket: str) -> tuple[int, float]:
        """The number of tokens, and if it is 0, the seconds until there is one."""
        calls, seconds, wanted = self._calls, self._per_seconds, self._lease
        name = hashed(f"{calls}/{seconds:g} {bucket}")
        asked = self._store.tokens("rate", name, calls=calls, per_seconds=seconds, wanted=wanted)
        tokens, wait = await answer_of(self._store.name, asked, within=self._timeout, to="check a limit")
        if not 0 <= tokens <= wanted:
            raise StoreError(f"{self._store.name}: it gave {tokens} tokens of {wanted} wanted")
        self._leases.put(bucket, (tokens, self._now() + wanted * seconds / calls))
        return tokens, wait


Scope = Literal["tool", "caller", "both"]
"""The scope of a bucket: each tool, each caller, or each tool for each caller."""

_ROUNDING: Final = 1e-6
"""The rounding error that a token may have."""


class RateLimit(Rule):
    """Lets calls through while the bucket has tokens; one is added every `per_seconds / calls` seconds.

    A burst of `calls` is let through at once. Callers that cannot be told apart share a bucket.
    """

    def __init__(
        self,
        calls: int,
        per_seconds: float,
        *,
        by: Scope = "tool",
        store: Store | None = None,
        lease: int = 1,
        store_timeout: float = STORE_TIMEOUT,
        max_entries: int = MAX_KEPT,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Allow `calls` in `per_seconds`.

        Args:
            calls: The number of calls, at once or spread out.
            per_seconds: The seconds in which an empty bucket fills.
            by: The owner of a bucket: each `"tool"`, each `"caller"` or each pair (`"both"`).
            store: The store of buckets that several processes share, open while it is used; in this process
                unless given.
            lease: The number of tokens that this process takes of the store at a time. Calls in between ask
                no store; tokens that are not used in the time in which they come back are lost.
            store_timeout: Seconds that the store has for an answer. Without one the call is refused.
            max_entries: The number of buckets to remember; a dropped bucket starts full.
            clock: The time in seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive and finite, `by` is not one of the three, or the
                lease is not from 1 to `calls`.
        """
        require_positive(
            "RateLimit",
            calls=calls,
            per_seconds=per_seconds,
            lease=lease,
            store_timeout=store_timeout,
            max_entries=max_entries,
        )
        if per_seconds == inf:
            raise DefinitionError("RateLimit: per_seconds is a number of seconds, not inf")
        if by not in get_args(Scope):
            raise DefinitionError(f'RateLimit counts by "tool", "caller" or "both", not by {by!r}')
        if lease > calls:
            raise DefinitionError(f"RateLimit: the lease of {lease} is more than the {calls} calls")
        self._calls = calls
        self._per_seconds = per_seconds
        self._by: Scope = by
        self._now = clock
        self._buckets: Recent[tuple[str, str | None], tuple[float, float]] = Recent(max_entries)
        self._shared = (
            None
            if store is None
            else LeasedTokens(
                store, calls, per_seconds, lease=lease, timeout=store_timeout, limit=max_entries, clock=clock
            )
        )

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call, or say when to retry."""
        if not context.counts(f"rate {call.name}"):
            return await next()
        key = self._key(call, context)
        try:
            wait = self._taken(key) if self._shared is None else await self._shared.take(json.dumps(key))
        except StoreError as fault:
            return self._refused(call, f"{call.name} is limited, and the limit cannot be checked: {fault}")
        if not wait:
            return await next()
        after = in_tenths(wait)
        limit = f"{self._calls} {'call' if self._calls == 1 else 'calls'} in {self._per_seconds:g} s"
        reason = f"{call.name} is limited to {limit}; try again in {after:g} s"
        return suggesting(self._refused(call, reason), after)

    def _refused(self, call: ToolCall, reason: str) -> ToolResult:
        record(call, "Reject", call.arguments, reason=reason)
        return rejection(Reject(reason, "policy"))

    def _key(self, call: ToolCall, context: ToolContext) -> tuple[str, str | None]:
        tool = "" if self._by == "caller" else call.name
        return tool, None if self._by == "tool" else caller_of(context)

    def _taken(self, key: tuple[str, str | None]) -> float:
        """Take a token, or return the seconds until one is added."""
        now, rate = self._now(), self._calls / self._per_seconds
        tokens, filled = self._buckets.get(key) or (self._calls, now)
        tokens = min(self._calls, tokens + max(0.0, now - filled) * rate)
        is_there = tokens >= 1 - _ROUNDING
        self._buckets.put(key, (max(0.0, tokens - 1) if is_there else tokens, now))
        return 0.0 if is_there else (1 - tokens) / rate
