"""`LimitStore`: a rate that several processes share; `LeasedTokens` takes tokens of it, some at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, runtime_checkable

from mcp_toolset.calls.middleware.caller import Recent
from mcp_toolset.concurrency.asked_store import answer_of
from mcp_toolset.concurrency.single_flight import SingleFlight
from mcp_toolset.errors import StoreError

LEAST_WAIT: Final = 0.1
"""Seconds that a caller is told to wait at least, whatever the store says."""


@dataclass(frozen=True, slots=True)
class TokensTaken:
    """The answer of a store of limits.

    Attributes:
        tokens: How many calls are let through, from none to as many as were wanted.
        wait: If none, the seconds until there is a token again.
    """

    tokens: int
    wait: float = 0.0


@runtime_checkable
class LimitStore(Protocol):
    """Token buckets in a place that several processes share.

    Attributes:
        name: The name of the store in errors, which models read: no address and no password.
    """

    name: str

    async def take(self, key: str, *, calls: int, per_seconds: float, wanted: int) -> TokensTaken:
        """Take up to `wanted` tokens out of a bucket, in one step that no other process can come between.

        The bucket holds `calls` tokens at first, and at most; they come back evenly, all in `per_seconds`.
        A bucket that is full may be forgotten.
        """
        ...


@dataclass(slots=True)
class _Lease:
    tokens: int
    ends: float


class LeasedTokens:
    """Tokens that this process has taken in advance. They lapse in the time in which they would come back."""

    def __init__(
        self,
        store: LimitStore,
        calls: int,
        per_seconds: float,
        *,
        lease: int,
        timeout: float,
        limit: int,
        now: Callable[[], float],
    ) -> None:
        """Take `lease` tokens at a time, and remember the leases of `limit` buckets."""
        self._store = store
        self._calls = calls
        self._per_seconds = per_seconds
        self._lease = lease
        self._timeout = timeout
        self._now = now
        self._leases: Recent[str, _Lease] = Recent(limit)
        self._flights: SingleFlight[str] = SingleFlight()

    async def take(self, bucket: str) -> float:
        """Take a token of a bucket; otherwise return the seconds until there is one.

        Raises:
            StoreError: the store failed, or gave no answer in time.
        """
        while not self._spent(bucket):
            taken = await self._flights.run(bucket, partial(self._ask, bucket))
            if taken.tokens < 1:
                return max(taken.wait, LEAST_WAIT)
        return 0.0

    def _spent(self, bucket: str) -> bool:
        lease = self._leases.get(bucket)
        if lease is None or lease.tokens < 1 or lease.ends <= self._now():
            return False
        lease.tokens -= 1
        return True

    async def _ask(self, bucket: str) -> TokensTaken:
        key = f"{self._calls}/{self._per_seconds:g} {bucket}"
        asked = self._store.take(key, calls=self._calls, per_seconds=self._per_seconds, wanted=self._lease)
        taken = await answer_of(self._store.name, asked, within=self._timeout, to="check a limit")
        if not 0 <= taken.tokens <= self._lease:
            raise StoreError(f"{self._store.name}: it gave {taken.tokens} tokens of {self._lease} wanted")
        ends = self._now() + self._lease * self._per_seconds / self._calls
        self._leases.put(bucket, _Lease(taken.tokens, ends))
        return taken
