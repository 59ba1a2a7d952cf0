"""`Resilience` of mounted servers: repeated calls and circuit breakers; and `RetryLimit`, the same for tools.

A call is repeated only if its tool says that this changes nothing more: `readOnlyHint` or `idempotentHint`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import anyio

from mcp_toolset import errors
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.checks import MAX_KEPT, Recent, caller_of
from mcp_toolset.calls.decision import Reject, in_tenths, record, rejection, rejection_reason, suggesting
from mcp_toolset.calls.middleware import CallNext
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.extending.mounts import MountExtension
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.extensions.retries.settings import RetriesOfServer

RECOVERY: Final = 60.0  # the default seconds for which a tool is refused


_K = TypeVar("_K")


class FailureCounts(Recent[_K, tuple[int, float]]):
    """Consecutive failures by key, with the time of the last one; and for how long a key is refused then."""

    def __init__(
        self, times: int, recover_after: float, *, max_entries: int, clock: Callable[[], float]
    ) -> None:
        """Refuse for `recover_after` seconds after `times` failures, then let one trial through at a time."""
        super().__init__(max_entries)
        self._times = times
        self._recover_after = recover_after
        self._now = clock

    def waits(self, key: _K) -> float:
        count, since = self.get(key) or (0, 0.0)
        return 0.0 if count < self._times else max(0.0, since + self._recover_after - self._now())

    def refused_for(self, key: _K) -> float:
        """The same for a call that is to run: once they are over, one trial call is let through."""
        wait, (count, _) = self.waits(key), self.get(key) or (0, 0.0)
        if not wait and count >= self._times:
            self.put(key, (count, self._now()))
        return wait

    def failed(self, key: _K) -> None:
        count, _ = self.get(key) or (0, 0.0)
        self.put(key, (count + 1, self._now()))


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
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Allow `times` consecutive failures.

        Args:
            times: The number of failures.
            recover_after: Seconds of refusal before a call is tried; `None` refuses until `reset`.
            max_entries: The number of pairs of tool and caller to remember; a dropped pair starts at zero.
            clock: The time in seconds, from a monotonic clock.

        Raises:
            DefinitionError: a number is not positive.
        """
        require_positive("RetryLimit", {"recover_after": recover_after}, times=times, max_entries=max_entries)
        self._times = times
        seconds = inf if recover_after is None else recover_after
        self._failures: FailureCounts[tuple[str, str | None]] = FailureCounts(
            times, seconds, max_entries=max_entries, clock=clock
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


ATTEMPTS_META_KEY: Final = "mcp-toolset/attempts"
"""In the `_meta` of a result: how often the call was made, if more than once."""

MAX_RETRIES: Final = 10

_EVERY_CALL: Final = ""


class Resilience(MountExtension):
    """The retries and the circuit breaker of one mounted server."""

    def __init__(
        self,
        server: str,
        retries: int,
        breaker: tuple[int, float] | None,
        *,
        is_ready: Callable[[], bool],
        clock: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        """Describe both; calls of a server that is not ready fail at once and do not count."""
        if not 0 <= retries <= MAX_RETRIES:
            raise errors.DefinitionError(
                f"mount {server!r}: retries must be from 0 to {MAX_RETRIES}, not {retries}"
            )
        if breaker is not None and (breaker[0] < 1 or not 0 < breaker[1] < inf):
            raise errors.DefinitionError(
                f"mount {server!r}: breaker needs positive numbers of failures and seconds, not {breaker}"
            )
        self._server = server
        self._retries = retries
        self._breaker = breaker
        self._is_ready = is_ready
        self._sleep = sleep
        times, seconds = breaker or (1, 1.0)
        self._failures: FailureCounts[str] = FailureCounts(times, seconds, max_entries=1, clock=clock)

    @classmethod
    def of(cls, server: str, stated: ServerSettings, is_ready: Callable[[], bool]) -> Self | None:
        said = cast("RetriesOfServer", stated)
        if said.retries == 0 and said.breaker is None:
            return None
        return cls(server, said.retries, said.breaker, is_ready=is_ready)

    @property
    def reason(self) -> str:
        wait = 0.0 if self._breaker is None else self._failures.waits(_EVERY_CALL)
        if not wait or self._breaker is None:
            return ""
        return f"{_times(self._breaker[0])} in a row failed; the server is not called for {wait:.1f} s"

    async def around(
        self, tool: ToolDefinition, context: ToolContext, send: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Send a call, and repeat it if that is safe; a server takes the state of its question once."""
        return await self.run(tool, send, repeats=not context.resumed)

    async def run(
        self, tool: ToolDefinition, send: Callable[[], Awaitable[ToolResult]], *, repeats: bool = True
    ) -> ToolResult:
        """Make a call, and repeat it after a failure if the tool and the call (`repeats`) may be repeated."""
        last = 1 + (self._retries if repeats and tool.repeatable else 0)
        backoff, sent = Backoff(), False
        for attempt in range(1, last):
            try:
                result = await self._attempt(send)
                if not (result.is_complete and result.is_error and tool.read_only):
                    return _told(result, attempt)
            except errors.UpstreamProtocolError as fault:
                # The tool may have run. Other codes than this one say that the call itself is wrong.
                if fault.code != INTERNAL_ERROR or not tool.read_only:
                    raise
            except (errors.UpstreamUnavailableError, errors.UpstreamTimeoutError) as fault:
                if self.reason or isinstance(fault, errors.LoginRequiredError):
                    raise
                sent = sent or fault.sent
            await self._sleep(backoff.after(0.0))
        try:
            return _told(await self._attempt(send), last)
        except (errors.UpstreamUnavailableError, errors.UpstreamTimeoutError) as fault:
            if last == 1 or isinstance(fault, errors.LoginRequiredError):
                raise
            told = f"{fault.reason} ({_times(last)} made)"
            raise type(fault)(fault.upstream, told, sent=sent or fault.sent) from None

    async def _attempt(self, send: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        if self._breaker is None:
            return await send()
        if wait := self._failures.refused_for(_EVERY_CALL):
            failed = f"{_times(self._breaker[0])} in a row failed"
            mend = f"it is not called for now, try again in {wait:.1f} s"
            raise errors.UpstreamUnavailableError(self._server, f"{failed}; {mend}", sent=False)
        counts = self._is_ready()
        try:
            result = await send()
        except errors.UpstreamError as fault:
            if isinstance(fault, errors.UpstreamProtocolError):
                self._failures.drop(_EVERY_CALL)
            elif counts and not isinstance(fault, errors.LoginRequiredError):
                self._failures.failed(_EVERY_CALL)
            raise
        self._failures.drop(_EVERY_CALL)
        return result


def _times(calls: int) -> str:
    return f"{calls} {'call' if calls == 1 else 'calls'}"


def _told(result: ToolResult, attempts: int) -> ToolResult:
    if attempts == 1 or not result.is_complete:
        return result
    meta: dict[str, Any] = result.wire.get("_meta") or {}
    wire: dict[str, Any] = {**result.wire, "_meta": {**meta, ATTEMPTS_META_KEY: attempts}}
    if result.is_error:
        wire["content"] = [*result.content, {"type": "text", "text": f"[{_times(attempts)} made]"}]
    return replace(result, wire=wire)


MOUNT = Resilience
