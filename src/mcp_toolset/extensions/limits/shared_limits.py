"""`SharedLimits`: the rates and counts of replicas, in the store that they share."""

from __future__ import annotations

from mcp_toolset.extensions.limits.rate import TokensTaken
from mcp_toolset.shared.state import hashed
from mcp_toolset.stores.store import Store


class SharedLimits:
    """A `CountStore`: token buckets and counts of calls in a `Store`."""

    def __init__(self, store: Store) -> None:
        self.name = store.name
        self._store = store

    async def take(self, key: str, *, calls: int, per_seconds: float, wanted: int) -> TokensTaken:
        """Take up to `wanted` tokens out of a bucket."""
        taken = self._store.tokens("rate", hashed(key), calls=calls, per_seconds=per_seconds, wanted=wanted)
        return TokensTaken(*await taken)

    async def count(self, key: str, *, most: int, seconds: float) -> bool:
        """Count one call, unless `most` were counted."""
        return await self._store.count("count", hashed(key), most=most, seconds=seconds + 1)
