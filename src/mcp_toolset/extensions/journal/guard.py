"""`JournalGuard`: records the calls of a server or a loop, so that a repeat of one has no second effect.

It stands right at the tool: the arguments are final, approvals are given, and what middleware repeats under
the same key is a repeat.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import anyio.lowlevel

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.middleware import CallNext, Run, ToolMiddleware
from mcp_toolset.calls.permissions import shown_arguments
from mcp_toolset.concurrency.tasks import answer_of
from mcp_toolset.errors import StoreError, ToolsetError
from mcp_toolset.extensions.journal.answers import (
    UNKNOWN,
    marked,
    outcome_of,
    outcome_of_fault,
    refusal,
    replayed,
    unknown,
)
from mcp_toolset.extensions.journal.call_effects import CallEffects
from mcp_toolset.extensions.journal.journal_store import (
    LIFETIME,
    Found,
    Intent,
    JournalStore,
    Kept,
    Outcome,
    Record,
    Standing,
)
from mcp_toolset.extensions.journal.modes import Modes
from mcp_toolset.extensions.journal.rules import JournalRules
from mcp_toolset.extensions.journal.unit import Unit, fingerprint_of, same_call, session_of, unit_of
from mcp_toolset.stores.store import StorePlace
from mcp_toolset.tools.binding import Gate, ToolBinding
from mcp_toolset.tools.call import EFFECTS, ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import plain_to_see
from mcp_toolset.tools.result import InputRequired, ToolResult

WAIT: Final = 30.0
"""Seconds that a repeat waits for the call that runs."""

MOST: Final = 1_000_000
"""Bytes of an outcome that are kept."""

STORE_TIMEOUT: Final = 10.0
"""Seconds that the journal has for one step."""

MOST_OWED: Final = 100
"""Outcomes that are kept here while the journal cannot be written."""

LARGEST_OWED: Final = 10_000
"""Bytes of such an outcome."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5
"""Seconds between two looks at a call that runs."""

_BEGIN: Final = "record the call, which did not run"

_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.journal")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt that was begun, and how the call stood before."""

    number: int = 1
    before: Kept | None = None


class JournalGuard(Rule):
    """Records calls in a journal: `Rules(guards=[JournalGuard("calls.sqlite3")])`.

    A call under a key that is known does not run: it gets the recorded result, waits for the call that runs,
    or is told that the outcome is not known. `async with guard:` opens the journal, which has to be open
    while calls run; a server opens the one that is its `journal=`.
    """

    def __init__(
        self,
        journal: StorePlace | None = None,
        tools: Modes | None = None,
        *,
        servers: Mapping[str, Modes] | None = None,
        read_only: bool = False,
        served: str = "",
        lifetime: float = LIFETIME,
        wait: float = WAIT,
        result_bytes: int = MOST,
    ) -> None:
        """Record calls.

        Args:
            journal: The path of a file, the URL of a store, or a `Store`; the user's file unless given.
            tools: By pattern of tools: `off`, `once`, or `repeat` if a call may run again after an unknown
                outcome. Unless a pattern says more, the tool's own hints do.
            servers: The same by mounted server, for its tools; such a pattern is used before one for all.
            read_only: Whether calls of tools that only read are recorded too.
            served: The name of the server or loop, so that several can share a journal.
            lifetime: Seconds for which a call is remembered.
            wait: Seconds that a repeat waits for the call that runs.
            result_bytes: Bytes of a result that are kept.

        Raises:
            ConfigError: the store cannot be used, or its extra is not installed.
            DefinitionError: a pattern names nothing, or there is no such mode.
        """
        self.journal = JournalStore(journal, lifetime=lifetime)
        self.serves_one = False
        self._rules = JournalRules(tools, servers, reads=read_only)
        self._served = served
        self._wait = wait
        self._most = result_bytes
        self._owed: OrderedDict[str, tuple[int, Outcome | None]] = OrderedDict()
        self._unbegun: deque[str] = deque(maxlen=1000)

    async def __aenter__(self) -> Self:
        """Open the journal; several users may do so.

        Raises:
            StoreError: it cannot be used.
        """
        await self.journal.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, once its last user has left."""
        await self.journal.__aexit__(kind, fault, trace)

    def gate(self, binding: ToolBinding) -> Gate | None:
        """Nothing: the journal refuses only what would run."""
        return None

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        return self._rules.unused(bindings)

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """None: it stands inside of all layers; see `recorded`."""
        return ()

    def replaying(self, binding: ToolBinding) -> ToolMiddleware | None:
        """What answers a repeat before it needs an approval or uses a limit up."""
        mode = self._rules.mode(binding)
        return None if mode == "off" else partial(self._repeated, binding, mode == "repeat")

    async def _repeated(
        self, binding: ToolBinding, repeats: bool, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        unit = unit_of(call, context, self._served)
        if unit.is_repeatable:
            intent = self._intent(unit, binding, call, context)
            known = await self._begun(unit, intent, repeats, context, looks=True)
            if isinstance(known, ToolResult):
                call = replace(call, recorded=known)
        return await next(call)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """What records the calls of a tool; `run` itself for a tool that is not recorded."""
        mode = self._rules.mode(binding)
        return run if mode == "off" else partial(self._once, binding, mode == "repeat", run)

    async def _once(
        self, binding: ToolBinding, repeats: bool, run: Run, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        if call.recorded is not None:
            return call.recorded
        unit = unit_of(call, context, self._served)
        intent = self._intent(unit, binding, call, context)
        began = await self._begun(unit, intent, repeats, context)
        if isinstance(began, ToolResult):
            return began
        if not binding.source:
            run = partial(_with_effects, CallEffects(self.journal, unit, intent, self._most, self._step), run)
        return await self._run(unit, began, binding, run, replace(call, key=unit.uuid), context)

    def _intent(self, unit: Unit, binding: ToolBinding, call: ToolCall, context: ToolContext) -> Intent:
        identity = context.identity
        return Intent(
            id=unit.id,
            fingerprint=fingerprint_of(binding, call),
            who="" if identity is None else plain_to_see(identity.name),
            session=session_of(context),
            server=binding.source,
            tool=binding.name,
            arguments=shown_arguments(call.arguments),
            source=unit.source,
            nonce=secrets.token_hex(8),
        )

    async def _begun(
        self, unit: Unit, intent: Intent, repeats: bool, context: ToolContext, *, looks: bool = False
    ) -> _Attempt | ToolResult:
        """The attempt that may run now, or what the caller is told instead.

        If it only `looks`, nothing is recorded, and the attempt has not begun.
        """
        pause, until = _FIRST_PAUSE, anyio.current_time() + self._wait
        while (found := await self._found(intent, looks)) is not None:
            record, standing = found
            if problem := self._foreign(unit, intent, found):
                return refusal(unit, found, f"did not run: {problem}")
            if standing == "done":
                return replayed(unit, record)
            if standing == "running" and not self._is_idle(found):
                if await self._pay():
                    continue
                if anyio.current_time() >= until:
                    told = (
                        "was not run again: the same call is still running; make it again to get its result"
                    )
                    return refusal(unit, found, told)
                await anyio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
            elif why := self._unrepeatable(intent, found, repeats, context):
                return refusal(unit, found, why)
            elif looks:
                return _Attempt()
            elif await self._began(self.journal.take_over(intent, record.attempt), intent):
                return _Attempt(record.attempt + 1, _before(record, standing))
        await self._pay()
        return _Attempt()

    async def _found(self, intent: Intent, looks: bool) -> Found | None:
        """What is recorded of a call, which is recorded as begun if there is nothing."""
        if looks:
            return await self._step(self.journal.find(intent.id), "look the call up, which did not run")
        return await self._began(self.journal.begin(intent), intent)

    async def _began(self, step: Awaitable[_T], intent: Intent) -> _T:
        """A step after which a call runs; if it fails, the call does not run, even if recorded later."""
        try:
            return await self._step(step, _BEGIN)
        except StoreError:
            self._unbegun.append(intent.nonce)
            raise

    def _is_idle(self, found: Found) -> bool:
        """True if the journal has recorded a call after it was given up here, so that nothing has run."""
        return found.standing == "running" and found.record.intent.nonce in self._unbegun

    def _unrepeatable(self, intent: Intent, found: Found, repeats: bool, context: ToolContext) -> str:
        """Why a call that has not ended may not run again; empty if it may."""
        record, standing = found
        if (self._is_idle(found) and record.attempt == 1) or (standing != "asked" and context.follows):
            return ""
        if standing == "asked":
            return "" if context.resumed else unknown(record, standing)
        if not repeats:
            return unknown(record, standing)
        if record.intent.fingerprint == intent.fingerprint:
            return ""
        return unknown(record, standing) + "; it does not run by itself, as hooks give it other arguments now"

    def _foreign(self, unit: Unit, intent: Intent, found: Found) -> str:
        """Why a record is not that of the call; empty if it is."""
        kept = found.record.intent
        if not same_call(kept.fingerprint, intent.fingerprint):
            return (
                "its key stands for another call, with other arguments or of another tool; "
                "give each call a key of its own, such as a UUID"
            )
        if unit.is_bound and not self.serves_one and kept.session != intent.session:
            return (
                "its key was used in another session, and without a login so short a key counts in its "
                "session alone; use a UUID as the key"
            )
        return ""

    async def _run(
        self,
        unit: Unit,
        attempt: _Attempt,
        binding: ToolBinding,
        run: Run,
        call: ToolCall,
        context: ToolContext,
    ) -> ToolResult:
        """Run an attempt, and record what it came to; `None` stands for a call that did not happen."""
        outcome: Outcome | None = None
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            outcome = UNKNOWN
            result = await run(call, context)
            outcome = self._of_result(unit, binding, result)
        except InputRequired:
            outcome = self._asked(binding)
            raise
        except ToolsetError as fault:
            outcome = outcome_of_fault(unit, fault, mounted=bool(binding.source), most=self._most)
            raise
        finally:
            await self._ended(unit, attempt, outcome)
        return marked(result, unit.id, "unknown") if outcome is UNKNOWN else result

    def _of_result(self, unit: Unit, binding: ToolBinding, result: ToolResult) -> Outcome | None:
        return outcome_of(unit, result, self._most) if result.is_complete else self._asked(binding)

    def _asked(self, binding: ToolBinding) -> Outcome | None:
        """A local tool that asks runs again from its start; a mounted one may go on meanwhile."""
        return Outcome("asked") if binding.source else None

    async def _ended(self, unit: Unit, attempt: _Attempt, outcome: Outcome | None) -> None:
        if outcome is None and attempt.before is not None:
            outcome = Outcome(attempt.before)
        if outcome is not None and outcome.state == "done" and not unit.is_repeatable:
            outcome = None
        if not await self._noted(unit.id, attempt.number, outcome):
            # The caller gets the result all the same, and the journal when it can be written again.
            if outcome is not None and len(outcome.sealed or b"") > LARGEST_OWED:
                outcome = Outcome("done", note="its result could not be recorded")
            self._owed[unit.id] = attempt.number, outcome
            if len(self._owed) > MOST_OWED:
                self._owed.popitem(last=False)

    async def _pay(self) -> bool:
        """Record outcomes that could not be recorded before; whether there was one."""
        paid = False
        while self._owed:
            id, (attempt, outcome) = self._owed.popitem(last=False)
            if not await self._noted(id, attempt, outcome):
                self._owed[id] = attempt, outcome
                # The oldest one is dropped if they become too many.
                self._owed.move_to_end(id, last=False)
                break
            paid = True
        return paid

    async def _noted(self, id: str, attempt: int, outcome: Outcome | None) -> bool:
        """Record how an attempt has ended; false if the journal cannot be written."""
        journal = self.journal
        step = journal.release(id, attempt) if outcome is None else journal.end(id, attempt, outcome)
        try:
            await self._step(step, "record the outcome of a call")
        except StoreError as fault:
            _log.error("%s", fault)
            return False
        return True

    async def _step(self, step: Awaitable[_T], to: str) -> _T:
        """One step of the journal, which is not given up half done.

        Raises:
            StoreError: the journal cannot be used.
        """
        name = self.journal.name
        try:
            with anyio.CancelScope(shield=True):
                return await answer_of(name, step, within=STORE_TIMEOUT, to=to)
        except StoreError as fault:
            # Its words are for the log: callers are not told where the journal is.
            _log.error("%s", fault)
            raise StoreError(f"{name} cannot be used now, so it could not {to}; try again later") from fault
        raise AssertionError("nothing cancels this scope")


def _before(record: Record, standing: Standing) -> Kept | None:
    """How a call stood before an attempt that is now begun."""
    if standing != "running":
        return standing
    return None if record.attempt == 1 else "unknown"


async def _with_effects(effects: CallEffects, run: Run, call: ToolCall, context: ToolContext) -> ToolResult:
    """Run a call of a local tool, whose handler may record steps."""
    token = EFFECTS.set(effects)
    try:
        return await run(call, context)
    finally:
        EFFECTS.reset(token)
