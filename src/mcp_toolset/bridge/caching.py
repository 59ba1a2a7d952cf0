"""Cache hints of lists and reads (2026-07-28, server/utilities/caching): the strictest of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Scope = Literal["public", "private"]
LONGEST: Final = 2**53 - 1
"""Milliseconds; what every JSON reader takes for an exact integer."""


@dataclass(frozen=True, slots=True)
class CacheHint:
    """How long an answer may be kept, and by whom.

    Attributes:
        ttl_ms: Milliseconds; 0 means that it is to be asked for again.
        scope: `public` if one client's answer may be shown to another.
    """

    ttl_ms: int = 0
    scope: Scope = "private"

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> CacheHint:
        """The hint of an answer; what is missing or makes no sense is taken as the strictest."""
        ttl: object = wire.get("ttlMs")
        usable = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0
        return cls(
            min(ttl, LONGEST) if usable and isinstance(ttl, int) else 0,
            "public" if wire.get("cacheScope") == "public" else "private",
        )

    def aged(self, seconds: float) -> CacheHint:
        """The hint for somebody who gets the answer this much later."""
        left = self.ttl_ms - seconds * 1000
        return CacheHint(int(left) if left > 0 else 0, self.scope)

    def to_wire(self) -> dict[str, Any]:
        """The two keys of an answer."""
        return {"ttlMs": self.ttl_ms, "cacheScope": self.scope}


STRICTEST: Final = CacheHint()


def strictest(hints: Iterable[CacheHint]) -> CacheHint:
    """The hint for an answer made of several: the shortest time, and private if one of them is."""
    parts = list(hints)
    if not parts:
        return STRICTEST
    private = any(part.scope == "private" for part in parts)
    return CacheHint(min(part.ttl_ms for part in parts), "private" if private else "public")
