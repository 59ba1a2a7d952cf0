"""Cache hints of lists and reads (2026-07-28, server/utilities/caching): the strictest of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

Scope = Literal["public", "private"]
LONGEST: Final = 2**53 - 1
"""Milliseconds; what every JSON reader takes for an exact integer."""


@dataclass(frozen=True, slots=True)
class CacheHint:
    """How long an answer may be kept, and by whom.

    Attributes:
        ttl_ms: Milliseconds; with 0 a client must ask again each time.
        scope: `public` if one client's answer may be shown to another.

    Raises:
        DefinitionError: the time is no whole number from 0 to `LONGEST`, or there is no such scope.
    """

    ttl_ms: int = 0
    scope: Scope = "private"

    def __post_init__(self) -> None:
        """Refuse what no client could read."""
        if type(self.ttl_ms) is not int or not 0 <= self.ttl_ms <= LONGEST:
            raise DefinitionError(f"ttl_ms is a whole number of milliseconds from 0, not {self.ttl_ms!r}")
        if self.scope not in get_args(Scope):
            raise DefinitionError(f"the scope of a cache hint is public or private, not {self.scope!r}")

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> CacheHint:
        """The hint of an answer; for a missing or invalid key the strictest value counts."""
        ttl: object = wire.get("ttlMs")
        usable = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0
        return cls(
            min(ttl, LONGEST) if usable and isinstance(ttl, int) else 0,
            "public" if wire.get("cacheScope") == "public" else "private",
        )

    def aged(self, seconds: float) -> CacheHint:
        """The hint for a client that gets the answer some seconds later."""
        left = self.ttl_ms - seconds * 1000
        return CacheHint(int(left) if left > 0 else 0, self.scope)

    def in_seconds(self) -> CacheHint:
        """The hint rounded down to whole seconds, so that equal answers within a second are identical."""
        if not self.ttl_ms % 1000:
            return self
        return CacheHint(self.ttl_ms - self.ttl_ms % 1000, self.scope)

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
