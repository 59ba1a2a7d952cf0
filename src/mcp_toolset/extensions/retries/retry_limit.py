"""`RetryLimit`: a circuit breaker for tools: a tool that fails repeatedly is refused for a while.

`FailureCounts` is what it counts with; mounted servers have breakers that count with it too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Generic, TypeVar

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset._rule import Rule
from mcp_toolset.calls.middleware.caller import MAX_KEPT, Recent, caller_of
from mcp_toolset.calls.pipeline.decision import (
    Reject,
    in_tenths,
    record,
    rejection,
    rejection_reason,
    suggesting,
)
from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult

RECOVERY: Final = 60.0
"""The default seconds for which a tool is refused."""


_K = TypeVar("_K")


@dataclass(slots=True)
class _Failures:
    count: int = 0
    since: float = 0.0


class FailureCounts(Generic[_K]):
    """Counts consecutive failures by key, and says for how long a key is refused after too many of them."""

    def __init__(
        self, times: int, recover_after: float, *, max_entries: int, now: Callable[[], float]
    ) -> None:
        """Refuse for `recover_after` seconds after `times` failures, then let one trial through at a time."""
        self._times = times
        self._recover_after = recover_after
        self._now = now
        self._failures: Recent[_K, _Failures] = Recent(max_entries)

    def waits(self, key: _K) -> float:
        """The remaining seconds of refusal."""
        failures = self._failures.get(key)
        if failures is None or failures.count < self._times:
            return 0.0
        return max(0.0, failures.since + self._recover_after - self._now())

    def refused_for(self, key: _K) -> float:
        """The same for a call that is to run: once they are over, one trial call is let through."""
        wait = self.waits(key)
        failures = self._failures.get(key)
        if not wait and failures is not None and failures.count >= self._times:
            failures.since = self._now()
        return wait

    def failed(self, key: _K) -> None:
        failures = self._failures.get(key) or _Failures()
        failures.count += 1
        failures.since = self._now()
        self._failures.put(key, failures)

    def drop(self, key: _K) -> None:
        self._failures.drop(key)

    def keys(self) -> list[_K]:
        return self._failures.keys()


class RetryLimit(Rule):
    """Counts consecutive failures of each tool for each caller; a success resets the count.

    After `times` failures the tool is refused to that caller. After `recover_after` seconds one call is let
    through: if it succeeds the refusal ends, if it fails the refusal starts again. Callers who cannot be
    told apart are counted together.

    A failure is an error result or an exception. Refusals by hooks, policies and other middleware do not
    count, nor do cancelled calls and calls that ask for input. Calls whose arguments do not fit end before
    any middleware.
    """

    def __init__(
        self,
        times: int,
        *,
        recover_after: float | None = RECOVERY,
        max_entries: int = MAX_KEPT,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Allow `times` consecutive failures.

        Args:
            times: The number of failures.
            recover_after: Seconds of refusal before a call is tried; `None` refuses until `reset`.
            max_entries: The number of pairs of tool and caller to remember; a dropped pair starts at zero.
            now: The time in seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive.
        """
        if times < 1 or (recover_after is not None and not recover_after > 0):
            found = f"{times} times and {recover_after} s"
            raise DefinitionError(f"RetryLimit needs positive numbers, not {found}")
        self._times = times
        seconds = inf if recover_after is None else recover_after
        self._failures: FailureCounts[tuple[str, str | None]] = FailureCounts(
            times, seconds, max_entries=max_entries, now=now
        )

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call unless its tool has failed too often."""
        key = (call.name, caller_of(context))
        wait = self._failures.refused_for(key)
        if wait:
            return self._refusal(call, wait)
        try:
            result = await next()
        # Any exception counts and is raised again; a cancelled call is not an `Exception`.
        except Exception:
            self._failures.failed(key)
            raise
        if result.is_complete and not result.is_error:
            self._failures.drop(key)
        elif result.is_complete and rejection_reason(result) is None:
            self._failures.failed(key)
        return result

    def reset(self, tool: str | None = None) -> None:
        """Reset the count of a tool, or of all tools, for every caller."""
        for key in self._failures.keys():
            if tool in (None, key[0]):
                self._failures.drop(key)

    def _refusal(self, call: ToolCall, wait: float) -> ToolResult:
        times = "" if self._times == 1 else f" {self._times} times in a row"
        after = inf if wait == inf else in_tenths(wait)
        mend = "it is not run any more" if after == inf else f"it can be tried again in {after:g} s"
        reason = f"{call.name} has failed{times}; {mend}, so do something else"
        record(call, "Reject", call.arguments, reason=reason)
        refusal = rejection(Reject(reason, "policy"))
        return refusal if after == inf else suggesting(refusal, after)
