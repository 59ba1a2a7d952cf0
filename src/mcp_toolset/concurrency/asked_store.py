"""`answer_of`: ask a store once and with a deadline; `SingleFlight`: askers for one thing share one run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import field
from typing import Any, Final, Generic, TypeVar, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.errors import StoreError

STORE_TIMEOUT: Final = 2.0  # Seconds that a store has for one answer unless told otherwise.

_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.stores")


async def answer_of(
    name: str, asked: Awaitable[_T], *, within: float, to: str, error: type[StoreError] = StoreError
) -> _T:
    """The answer of the store `name`, within so many seconds; `to` says what it was asked to do."""
    try:
        with anyio.fail_after(within):
            return await asked
    except TimeoutError:
        reason = f"it gave no answer within {within:g} s"
        _log.error("%s: %s (%s)", name, reason, to)
    # A store is the application's code and may raise anything; its words may have credentials in them.
    except Exception as fault:
        if isinstance(fault, error):
            raise
        if isinstance(fault, StoreError):
            # The store has logged it, and says it for models.
            raise error(str(fault)) from None
        reason = "it cannot be used now"
        _log.error("%s: %s failed: %r", name, to, fault)
    raise error(f"{name}: {reason}, so it could not {to}; try again later")


_K = TypeVar("_K", bound=Hashable)


@dataclass(slots=True)
class _Flight:
    ended: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    fault: Exception | None = None
    was_cancelled: bool = True


class SingleFlight(Generic[_K]):
    """One run for each key at a time, of the task that asked first; if cancelled, another one begins anew."""

    def __init__(self) -> None:
        self._flights: dict[_K, _Flight] = {}

    async def run(self, key: _K, fetch: Callable[[], Awaitable[_T]]) -> _T:
        """The result of `fetch`, in this run or in the run of a caller that asked before."""
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
