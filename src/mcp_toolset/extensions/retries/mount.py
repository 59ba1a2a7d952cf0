"""`Resilience`: repeat calls of a mounted server that may be repeated, and stop calling one that only fails.

A call is repeated only if its tool says that this changes nothing more: `readOnlyHint` or `idempotentHint`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import anyio

from mcp_toolset._records import replace
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.errors import (
    DefinitionError,
    LoginRequiredError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.extending.mounts import MountExtension
from mcp_toolset.extensions.retries.retry_limit import FailureCounts
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.extensions.retries.settings import RetriesOfServer
    from mcp_toolset.tools.core.call import ToolContext

ATTEMPTS_META_KEY: Final = "mcp-toolset/attempts"
"""In the `_meta` of a result: how often the call was made, if more than once."""

MAX_RETRIES: Final = 10

_EVERY_CALL: Final = ""


class Breaker(NamedTuple):
    """After so many failures in a row, calls are refused for so many seconds; then one is tried."""

    failures: int
    seconds: float


class Resilience(MountExtension):
    """The retries and the circuit breaker of one mounted server."""

    def __init__(
        self,
        server: str,
        retries: int,
        breaker: tuple[int, float] | None,
        *,
        is_ready: Callable[[], bool],
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        """Describe both.

        Args:
            server: The name of the mount, for errors.
            retries: How often a call is repeated.
            breaker: The failures in a row after which calls are refused, and for how many seconds.
            is_ready: Whether the server is connected; while it is not, calls fail at once and do not count.
            now: Seconds, from a monotonic clock.
            sleep: Waits so many seconds.
        """
        if not 0 <= retries <= MAX_RETRIES:
            raise DefinitionError(f"mount {server!r}: retries must be from 0 to {MAX_RETRIES}, not {retries}")
        if breaker is not None and (breaker[0] < 1 or not 0 < breaker[1] < inf):
            raise DefinitionError(
                f"mount {server!r}: breaker needs positive numbers of failures and seconds, not {breaker}"
            )
        self._server = server
        self._retries = retries
        self._breaker = None if breaker is None else Breaker(*breaker)
        self._is_ready = is_ready
        self._sleep = sleep
        times, seconds = breaker or (1, 1.0)
        self._failures: FailureCounts[str] = FailureCounts(times, seconds, max_entries=1, now=now)

    @classmethod
    def of(cls, server: str, stated: ServerSettings, is_ready: Callable[[], bool]) -> Self | None:
        """See `MountExtension`."""
        said = cast("RetriesOfServer", stated)
        if said.retries == 0 and said.breaker is None:
            return None
        return cls(server, said.retries, said.breaker, is_ready=is_ready)

    @property
    def reason(self) -> str:
        """See `MountExtension`."""
        wait = 0.0 if self._breaker is None else self._failures.waits(_EVERY_CALL)
        if not wait or self._breaker is None:
            return ""
        return f"{_times(self._breaker.failures)} in a row failed; the server is not called for {wait:.1f} s"

    async def around(
        self, tool: ToolDefinition, context: ToolContext, send: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """See `MountExtension`; a server takes the state of its question once."""
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
            except UpstreamProtocolError as fault:
                # The tool may have run. Other codes than this one say that the call itself is wrong.
                if fault.code != INTERNAL_ERROR or not tool.read_only:
                    raise
            except (UpstreamUnavailableError, UpstreamTimeoutError) as fault:
                if self.reason or isinstance(fault, LoginRequiredError):
                    raise
                sent = sent or fault.sent
            await self._sleep(backoff.after(0.0))
        try:
            return _told(await self._attempt(send), last)
        except (UpstreamUnavailableError, UpstreamTimeoutError) as fault:
            if last == 1 or isinstance(fault, LoginRequiredError):
                raise
            told = f"{fault.reason} ({_times(last)} made)"
            raise type(fault)(fault.upstream, told, sent=sent or fault.sent) from None

    async def _attempt(self, send: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        if self._breaker is None:
            return await send()
        if wait := self._failures.refused_for(_EVERY_CALL):
            failed = f"{_times(self._breaker.failures)} in a row failed"
            mend = f"it is not called for now, try again in {wait:.1f} s"
            raise UpstreamUnavailableError(self._server, f"{failed}; {mend}", sent=False)
        counts = self._is_ready()
        try:
            result = await send()
        except UpstreamError as fault:
            if isinstance(fault, UpstreamProtocolError):
                self._failures.drop(_EVERY_CALL)
            elif counts and not isinstance(fault, LoginRequiredError):
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
