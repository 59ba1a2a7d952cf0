"""`SingleFlight`: those who want the same thing at the same time share one run of what fetches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import anyio

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Flight:
    ended: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    fault: Exception | None = None
    was_cancelled: bool = True


class SingleFlight(Generic[_K]):
    """One run for each key at a time.

    It belongs to the task that asked first; if that task is cancelled, another one begins anew.
    """

    def __init__(self) -> None:
        """Nothing is in flight."""
        self._flights: dict[_K, _Flight] = {}

    async def run(self, key: _K, fetch: Callable[[], Awaitable[_T]]) -> _T:
        """What `fetch` gives, or raises: by a run of one's own, or that of another who asked before."""
        while (other := self._flights.get(key)) is not None:
            await other.ended.wait()
            if other.fault is not None:
                raise other.fault
            if not other.was_cancelled:
                return cast("_T", other.value)
        flight = self._flights[key] = _Flight()
        try:
            flight.value = await fetch()
            flight.was_cancelled = False
            return flight.value
        # Whatever it is, those who wait must learn of it.
        except Exception as fault:
            flight.fault = fault
            raise
        finally:
            del self._flights[key]
            flight.ended.set()
