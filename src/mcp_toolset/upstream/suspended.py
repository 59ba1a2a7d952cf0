"""`SuspendedCalls`: calls of a legacy upstream that keep running between requests of a modern client.

A legacy server asks within a call and waits; a modern client is asked by ending its call with
`input_required`, and answers by repeating it (2026-07-28, "Multi round-trip requests"). So the call
upstream runs in a task of its own. The handle that finds it again travels in the signed
`requestState`, which is bound to the tool, the arguments and the principal, and ends. A client that
never returns frees its call when the time for its answer is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.request import ASK_DEADLINE, WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.errors import CallError
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_REQUEST, MCPError
from mcp_toolset.tools.core.asking import InputRequired
from mcp_toolset.transports.backpressure import calling
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.sessions.question_shapes import for_modern

MAX_SUSPENDED: Final = 128
"""Calls of one upstream that may wait for answers at once; further questions are refused."""

OWN_SUSPENDED: Final = 32
"""The same of one caller."""

MAX_LEGS: Final = 64
"""Requests with which a client may come for one call; one that never answers is not asked forever."""

GATHERING: Final = 0.01
"""Seconds after a question in which others may join it, so that those asked at once are one round."""

Work = Callable[["SuspendedCall"], Awaitable[dict[str, Any]]]


@dataclass(eq=False, slots=True)
class _Question:
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class SuspendedCall(CallInFlight):
    """A call that outlives the requests of the client that it is for."""

    __slots__ = (
        "_changed",
        "_fault",
        "_legs",
        "_paced_by",
        "_suspended",
        "_questions",
        "_result",
        "_scope",
        "collected",
        "done",
        "handle",
        "share",
    )

    def __init__(self, caller: WireContext, suspended: SuspendedCalls) -> None:
        """Begin for a caller; `run` does the work."""
        super().__init__(caller, client=caller.client_key)
        self.handle = secrets.token_urlsafe(12)
        self.share = caller.share
        self.done = False
        self.collected = anyio.Event()
        self._suspended = suspended
        self._legs = 0
        self._questions: dict[str, _Question] = {}
        self._changed = anyio.Event()
        self._result: dict[str, Any] | None = None
        self._fault: Exception | None = None
        self._paced_by = calling.get()
        self._scope = anyio.CancelScope()

    async def run(self, work: Work) -> None:
        """Do the work, to its end or the client's."""
        calling.set(self._paced_by)
        try:
            with self._scope:
                self._result = await work(self)
        # Whatever it is, it is raised where the call is waited for, and must not end the upstream.
        except Exception as fault:
            self._fault = fault
        finally:
            self.done = True
            self._tell()

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Have the client asked by the request that waits for this call now, or by its next one."""
        if taken := self._suspended.taken_for(self):
            raise MCPError(INVALID_REQUEST, f"{method} is refused: {taken} wait for answers already")
        # From now on: calls that ask at once are counted before the first of their clients is told.
        self.keep()
        key = f"{self.handle}.{self.asked}"
        question = self._questions[key] = _Question(for_modern(method, params))
        self._tell()
        try:
            with anyio.move_on_after(ASK_DEADLINE):
                await question.answered.wait()
            if question.answer is None:
                self._scope.cancel()
                raise MCPError(INTERNAL_ERROR, f"the client gave no answer within {ASK_DEADLINE:g} s")
            return dict(question.answer)
        finally:
            del self._questions[key]
            self._tell()

    async def leg(self, caller: WireContext) -> dict[str, Any]:
        """Wait for the result, on behalf of one request of the client."""
        self.context = caller
        self._legs += 1
        if self._legs > MAX_LEGS:
            self._scope.cancel()
            raise CallError(f"the call was repeated {MAX_LEGS} times and still asks; it was ended")
        try:
            await self._catch_up()
            self._take(caller.replay.answers)
            while not (self.done and not self._questions):
                if self._unanswered():
                    await anyio.sleep(GATHERING)
                    if self._unanswered():
                        await self.delivery.hold()
                    if unanswered := self._unanswered():
                        raise InputRequired(unanswered)
                    await self._catch_up()
                    continue
                await self._changed.wait()
            await super().told()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        finally:
            super().bill()
        self.collected.set()
        return self._outcome()

    def bill(self) -> None:
        """Add nothing: the work has a task of its own, and `leg` bills each request of the client."""

    async def told(self) -> None:
        """Wait for nothing: the client is told by its requests, and before the last of them is answered."""

    @property
    def is_over(self) -> bool:
        return self.collected.is_set()

    async def _catch_up(self) -> None:
        """Tell the client what was said since its last request."""
        if self.home is not None and self.delivery.held:
            self.home.go_on(self)
            await self.delivery.all_left()

    def keep(self) -> None:
        """Be held until the client comes back, among the calls that it began with."""
        self._suspended.keep(self)

    def forget(self) -> None:
        self._suspended.forget(self)

    async def drained(self) -> None:
        """Wait until nothing is asked any more, for what may have been asked by another call."""
        while self._questions:
            await self._changed.wait()

    def _unanswered(self) -> dict[str, Mapping[str, Any]]:
        return {key: each.request for key, each in self._questions.items() if each.answer is None}

    def _take(self, answers: dict[str, Mapping[str, Any]]) -> None:
        """Hand the answers on; what has been handed on need not travel any further."""
        for key in [key for key in answers if key.startswith(f"{self.handle}.")]:
            answer = answers.pop(key)
            question = self._questions.get(key)
            if question is not None and question.answer is None:
                question.answer = answer
                question.answered.set()

    def _outcome(self) -> dict[str, Any]:
        """The outcome, which is not kept: cancelled timers of the call have this object until their time."""
        result, self._result = self._result, None
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        if result is None:
            raise CallError("the call has ended before its questions were answered; call again")
        return result

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class SuspendedCalls:
    """The calls of one upstream that go on between the requests of their clients."""

    def __init__(self) -> None:
        self.on_freed: Callable[[], None] = _nothing
        self._calls: dict[str, SuspendedCall] = {}
        self._before: SuspendedCalls | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def taken_for(self, call: SuspendedCall) -> str:
        """What is in the way of one more call that waits for its client; empty if nothing is."""
        if call.handle in self._calls:
            return ""
        own = sum(bool(call.share) and each.share == call.share for each in self._calls.values())
        if own >= OWN_SUSPENDED:
            return f"{OWN_SUSPENDED} calls of this caller"
        return f"{MAX_SUSPENDED} calls" if len(self._calls) >= MAX_SUSPENDED else ""

    async def carry(
        self, caller: WireContext, name: str, start: Callable[..., None], work: Work
    ) -> dict[str, Any]:
        """Begin a call, or go on with the one that the caller was asked for.

        Args:
            caller: The request that waits for it.
            name: What tells the call from others of the same request, the same at each repetition.
            start: Starts a task that outlives the request.
            work: The call.
        """
        key = caller.replay.key("parked", {}, name)
        handle = caller.replay.parked.pop(key, None)
        call = self._begun(caller, start, work) if handle is None else self._found(handle)
        try:
            result = await call.leg(caller)
        except InputRequired:
            call.keep()
            caller.replay.parked[key] = call.handle
            raise
        except BaseException:
            call.forget()
            raise
        call.forget()
        return result

    def follow(self, before: SuspendedCalls) -> None:
        """Find here the calls that wait there as well: their upstream is being replaced."""
        self._before = before

    def unfollow(self, before: SuspendedCalls) -> None:
        """Look there no longer, where nothing waits any more."""
        if self._before is before:
            self._before = None

    def keep(self, call: SuspendedCall) -> None:
        """Hold a call until its client comes back."""
        self._calls[call.handle] = call

    def forget(self, call: SuspendedCall) -> None:
        """Let go of a call, if it is held."""
        if self._calls.pop(call.handle, None) is not None:
            self.on_freed()

    def _begun(self, caller: WireContext, start: Callable[..., None], work: Work) -> SuspendedCall:
        if caller.replay.foreign:
            raise CallError(f"{FOREIGN}; call again")
        call = SuspendedCall(caller, self)
        start(self._run, call, work)
        return call

    async def _run(self, call: SuspendedCall, work: Work) -> None:
        """The life of a call; what it came to is kept for a while if its client is away."""
        try:
            await call.run(work)
            if call.handle in self._calls:
                with anyio.move_on_after(ASK_DEADLINE):
                    await call.collected.wait()
        finally:
            self.forget(call)

    def _found(self, handle: str) -> SuspendedCall:
        call = self._calls.get(handle)
        if call is None and self._before is not None:
            return self._before._found(handle)
        if call is None:
            raise CallError("the call that waited for this answer has ended; call again")
        return call


def _nothing() -> None:
    return None
