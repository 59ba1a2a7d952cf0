"""`CallLimits`: the limits of a server's tools, by pattern and caller, right before a tool runs."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import anyio
from pydantic_core import to_json

from mcp_toolset._records import replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.checks import MAX_KEPT, Nobody, Recent, Timeout, caller_of, cut, text_of
from mcp_toolset.calls.decision import Reject, in_tenths, record, rejection, suggesting
from mcp_toolset.calls.middleware import CallNext, ToolMiddleware
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT, answer_of
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.limits.limits import NAMES, Group, Limit, Limits, LimitTable, per
from mcp_toolset.extensions.limits.rate import RateLimit
from mcp_toolset.security.patterns import ToolFacts
from mcp_toolset.security.policy import facts_of
from mcp_toolset.stores.store import Store, hashed
from mcp_toolset.tools.binding import Gate, ToolBinding
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult

WAIT: Final = 30.0
"""Seconds that a call waits for others to end, unless a `timeout` says otherwise."""

_RETRY: Final = 1.0
"""Seconds after which a call may be tried again that has waited for others in vain."""


_CALLERS: Final = 4096
"""Callers whose group is remembered."""

_TOOLS: Final = 4096
"""Tools, of one group of callers each, whose layers are remembered."""


class CallLimits(Rule):
    """Applies limits to the calls of a server or a loop: `Rules(guards=[CallLimits({"*": Limits(…)})])`."""

    _decides = ("facts", "of", "__call__")

    def __init__(
        self,
        limits: Mapping[str, Limits],
        servers: Mapping[str, Mapping[str, Limits]] | None = None,
        *,
        store: Store | None = None,
        clock: Callable[[], float] = anyio.current_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Apply `limits`, by pattern; see docs/limits.md.

        Args:
            limits: For all tools.
            servers: By mounted server, for its tools; such a limit is used before one for all tools.
            store: The store in which replicas count rates and calls together, open while it is used; in this
                process unless given. Calls that run at the same time are counted in each process.
            clock: Seconds, from a monotonic clock.
            wall: Seconds since the epoch.

        Raises:
            DefinitionError: a pattern names nothing.
        """
        self._table = LimitTable(limits, servers)
        self.unreached = self._table.unreached
        self._nobody = Nobody()
        self._store = store
        self._now = clock
        self._wall = wall
        self._made: dict[tuple[str, str], ToolMiddleware | ConcurrencyLimit] = {}
        self._group = lru_cache(_CALLERS)(self._table.group)
        self._layers = lru_cache(_TOOLS)(self._made_for)

    @property
    def varies(self) -> bool:
        """True if some limits are for some callers only."""
        return self._table.varies

    def gate(self, binding: ToolBinding) -> Gate | None:
        """No gate: limits apply to calls that would run."""
        return None

    def facts(self, binding: ToolBinding) -> ToolFacts:
        """The facts of a tool that patterns look at."""
        return facts_of(binding)

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        return self._table.unused(map(facts_of, bindings))

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """The middleware that limits the calls of one tool; tools of one pattern share it."""
        if binding.redirect is not None:
            return ()
        facts = facts_of(binding)
        every = self._table.for_some(facts)
        if not every:
            return [_counting(key, layer) for key, layer in self._layers(facts, ()).items()]
        kinds = {limit.key for limit in self._table.of(facts, every)}
        return [partial(self._callers_own, facts, key) for key in NAMES if key in kinds]

    def of(self, binding: ToolBinding, identity: Identity | None) -> list[Limit]:
        """The limits of a tool and a caller, each with its place in the configuration."""
        return (
            [] if binding.redirect is not None else self._table.of(facts_of(binding), self._group(identity))
        )

    async def _callers_own(
        self, facts: ToolFacts, key: str, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        """Apply the limit of one kind that the caller has, if any."""
        self._nobody.look(context)
        layer = self._layers(facts, self._group(context.identity)).get(key)
        return await (next() if layer is None else _counting(key, layer)(call, context, next))

    def _made_for(self, facts: ToolFacts, group: Group) -> Mapping[str, ToolMiddleware]:
        limits = {limit.key: limit for limit in self._table.of(facts, group)}
        wait = limits["timeout"].value if "timeout" in limits else WAIT
        return {key: self._layer(limits[key], wait) for key in NAMES if key in limits}

    def _layer(self, limit: Limit, wait: float) -> ToolMiddleware:
        made = self._made.get((limit.place, limit.key))
        if made is None:
            made = self._made[limit.place, limit.key] = self._new(limit)
        return partial(made.within, wait) if isinstance(made, ConcurrencyLimit) else made

    def _new(self, limit: Limit) -> ToolMiddleware | ConcurrencyLimit:
        match limit.key:
            case "rate":
                return CallersRate(limit, self._store, self._now)
            case "calls":
                return CallBudget(limit, self._store, self._wall)
            case "concurrency":
                return ConcurrencyLimit(limit.value)
            case "timeout":
                return Timeout(limit.value)
            case _:
                return partial(_cut_off, limit.value)


def _counting(key: str, layer: ToolMiddleware) -> ToolMiddleware:
    """The limit, which counts no call that a journal answers; the result of such a call is limited too."""
    return layer if key == "result_bytes" else partial(_unless_recorded, layer)


async def _unless_recorded(
    layer: ToolMiddleware, call: ToolCall, context: ToolContext, next: CallNext
) -> ToolResult:
    return await (layer(call, context, next) if call.recorded is None else next())


def _refused(call: ToolCall, reason: str, after: float) -> ToolResult:
    reason = f"{call.name} {reason}; try again in {after:g} s"
    record(call, "Reject", call.arguments, reason=reason)
    return suggesting(rejection(Reject(reason, "policy")), after)


class CallersRate(RateLimit):
    """The rate of each caller, with buckets of its own in a store."""

    def __init__(self, limit: Limit, store: Store | None, clock: Callable[[], float]) -> None:
        calls, seconds = per(limit.value)
        super().__init__(calls, seconds, by="caller", store=store, clock=clock)
        self._place = limit.place

    def _key(self, call: ToolCall, context: ToolContext) -> tuple[str, str | None]:
        return self._place, caller_of(context)


class CallBudget:
    """Lets each caller make so many calls in each day, or in another span; spans begin in UTC."""

    def __init__(self, limit: Limit, store: Store | None, clock: Callable[[], float]) -> None:
        """Apply a limit; `clock` gives seconds since the epoch; replicas count in `store`."""
        self._calls, self._seconds = per(limit.value)
        self._place = limit.place
        self._store = store
        self._clock = clock
        self._used: Recent[str | None, tuple[float, int]] = Recent(MAX_KEPT)

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call if the budget of its caller is not used up."""
        if not context.counts(f"calls {call.name}"):
            return await next()
        caller, calls, seconds = caller_of(context), self._calls, self._seconds
        span, gone = divmod(self._clock(), seconds)
        try:
            is_left = (
                self._counted(caller, span)
                if self._store is None
                else await self._shared(self._store, caller, span)
            )
        except StoreError as fault:
            return _refused(call, f"is limited, and the limit cannot be checked: {fault}", _RETRY)
        if is_left:
            return await next()
        reason = f"is limited to {calls} {'call' if calls == 1 else 'calls'} in {seconds:g} s; none is left"
        return _refused(call, reason, in_tenths(seconds - gone))

    def _counted(self, caller: str | None, span: float) -> bool:
        began, used = self._used.get(caller) or (span, 0)
        used = used if began == span else 0
        if used < self._calls:
            self._used.put(caller, (span, used + 1))
        return used < self._calls

    async def _shared(self, store: Store, caller: str | None, span: float) -> bool:
        name = hashed(json.dumps([self._place, caller, span]))
        asked = store.count("count", name, max_count=self._calls, ttl=self._seconds + 1)
        return await answer_of(store.name, asked, within=STORE_TIMEOUT, to="count a call")


class ConcurrencyLimit:
    """Lets so many calls of each caller run at the same time; others wait, the first one first."""

    def __init__(self, calls: int) -> None:
        """Allow `calls`."""
        self._calls = calls
        self._slots: dict[str | None, anyio.Semaphore] = {}
        self._running = Counter[str | None]()

    async def within(self, wait: float, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call, after at most `wait` seconds, or refuse it."""
        caller = caller_of(context)
        slots = self._slots.get(caller)
        if slots is None:
            slots = self._slots[caller] = anyio.Semaphore(self._calls, fast_acquire=True)
        self._running[caller] += 1
        try:
            with anyio.move_on_after(wait) as waiting:
                await slots.acquire()
            if waiting.cancelled_caught:
                reason = (
                    f"is limited to {self._calls} at a time, and none of them has ended within {wait:g} s"
                )
                return _refused(call, reason, _RETRY)
            try:
                return await next()
            finally:
                slots.release()
        finally:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller], self._slots[caller]


async def _cut_off(most: int, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    """Cut a result that takes more than `most` bytes in JSON, beside the note which says so.

    Images, other data and structured content are left out of such a result. If the tool has an output schema,
    whose content cannot be left out, the result is an error instead.
    """
    result = await next()
    size = _size(result.wire) if result.is_complete else 0
    if size <= most:
        return result
    told = f"the result takes {size} bytes and may take {most}"
    if next.definition.output_schema is not None and not result.is_error:
        return ToolResult.of_error(f"{call.name}: {told}; ask for less")
    wire = {key: value for key, value in result.wire.items() if key not in ("structuredContent", "_meta")}
    texts = [block for block in result.content if text_of(block)]
    longest = bisect_right(range(most + 1), most, key=lambda length: _size(cut(texts, length)[0])) - 1
    note = {"type": "text", "text": f"[{told}: the rest is cut off; ask for less]"}
    return replace(result, wire={**wire, "content": [*cut(texts, max(longest, 0))[0], note]})


def _size(value: Any) -> int:
    return len(to_json(value))
