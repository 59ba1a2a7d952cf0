"""Rounds: one assistant turn with tool calls, from its message to a committed set of results.

The application owns the loop and nothing runs by itself (L1):

```python
round = ToolRound.from_openai(reply.choices[0].message, view)
plan = await round.apply_hooks(hooks)
messages += plan.commit(await plan.run_pending()).to_openai()
```

A round goes from `open` to `committed` or `discarded`, once. Every step either succeeds or raises
`RoundError` with everything as it was (L14). `apply_hooks` returns a plan that takes the place of
what it was called on, which then refuses to go on: so a plan that has not heard the last hooks
cannot be run or committed by mistake. There is no I/O here; waiting is done in `runner`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from mcp_toolset.calls.decision import Reject
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.providers import (
    Arguments,
    AssistantCall,
    AssistantTurn,
    openai_message,
    openai_result,
    turn_from_openai,
)
from mcp_toolset.calls.rejection import rejection
from mcp_toolset.calls.runner import (
    RUN_CONCURRENCY,
    RUN_DEADLINE,
    CallResult,
    HandledCall,
    RejectedCall,
    ask_hooks,
    original_of,
    run_calls,
)
from mcp_toolset.errors import RoundError, UnknownToolError
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.view import ToolView

RoundState = Literal["open", "committed", "discarded"]
"""Where a round stands; the last two are final."""


class IssueReason(StrEnum):
    """Why a call of the model cannot be run as it is (L22)."""

    UNKNOWN_TOOL = "unknown_tool"
    UNAVAILABLE_TOOL = "unavailable_tool"
    INVALID_JSON = "invalid_json"
    INVALID_ARGUMENTS = "invalid_arguments"


@dataclass(frozen=True, slots=True)
class RoundIssue:
    """A call that cannot be run but can be recovered from: the model is told and may call again (L22).

    Attributes:
        call: The call as it came; its arguments are text when they were no JSON object.
        reason: For the application.
        message: For the model; it never tells an unavailable tool from an unknown one (F34).
    """

    call: AssistantCall
    reason: IssueReason
    message: str


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """A committed round: the assistant's message, and one result for each of its calls, in its order."""

    message: Mapping[str, Any]
    results: tuple[CallResult, ...]

    def to_openai(self) -> list[dict[str, Any]]:
        """The messages to append to a chat completion's: the assistant's, then one per call."""
        answers = [openai_result(done.id, done.result) for done in self.results]
        return [deepcopy(dict(self.message)), *answers]


_Examined = ToolCall | RoundIssue


class _Progress:
    """The one thing that moves in a round: its state, and the plan that may move it on."""

    __slots__ = ("holder", "state")

    def __init__(self) -> None:
        self.state: RoundState = "open"
        self.holder: object = None

    def require(self, holder: object) -> None:
        if self.state != "open":
            raise RoundError(f"this round is already {self.state}; make one of the next assistant message")
        if self.holder is not holder:
            raise RoundError("a newer plan has replaced this one; go on with what apply_hooks returned")

    def hand_over(self, holder: object, newer: object) -> None:
        self.require(holder)
        self.holder = newer

    def close(self, holder: object, state: RoundState) -> None:
        self.require(holder)
        self.state = state


class ToolRound:
    """The calls of one assistant turn, sorted into those that can run and those with an issue."""

    def __init__(self, turn: AssistantTurn, examined: list[_Examined], view: ToolView) -> None:
        """Hold the examined calls of `turn`; `from_openai` and `from_calls` are the ways in."""
        self.calls = tuple(call for call in examined if isinstance(call, ToolCall))
        self.issues = tuple(call for call in examined if isinstance(call, RoundIssue))
        progress = _Progress()
        self._plan = ToolRoundPlan(self.calls, (), (), self.issues, turn, view, HookSet(), progress)
        progress.holder = self._plan

    @classmethod
    def from_openai(cls, message: object, view: ToolView, known: Container[str] = ()) -> ToolRound:
        """A round from the message of a chat completion.

        Args:
            message: A `ChatCompletionMessage`, or the same as a dictionary.
            view: The tools that were offered for this turn.
            known: Names of tools that exist but were not offered (another view will do), so that
                their calls are issues with the reason `unavailable_tool`.

        Raises:
            RoundError: it is no assistant message, or its calls cannot be told apart by their ids.
        """
        turn = turn_from_openai(message)
        return cls(turn, [_examined(call, call.arguments, view, known) for call in turn.calls], view)

    @classmethod
    def from_calls(cls, calls: Iterable[ToolCall], view: ToolView, known: Container[str] = ()) -> ToolRound:
        """A round from decoded calls, each with an id of its own; see `from_openai`."""
        calls = list(calls)
        made = tuple(AssistantCall(call.id, call.name, deepcopy(original_of(call))) for call in calls)
        pairs = zip(made, calls, strict=True)
        examined = [_examined(call, given.arguments, view, known) for call, given in pairs]
        return cls(AssistantTurn(openai_message(made), made), examined, view)

    @property
    def state(self) -> RoundState:
        """Where the round stands."""
        return self._plan.state

    def expect_at_most_one(self) -> ToolCall | None:
        """The only call, or `None` if the turn has none (L15).

        Raises:
            RoundError: there are several calls, or the only one has an issue.
        """
        if (count := len(self.calls) + len(self.issues)) > 1:
            raise RoundError(f"expected at most one call, found {count}; go through them all")
        if self.issues:
            raise RoundError(f"expected a call that can run: {self.issues[0].message}")
        return self.calls[0] if self.calls else None

    def expect_one(self) -> ToolCall:
        """The only call of the turn (L15).

        Raises:
            RoundError: there is none, there are several, or the only one has an issue.
        """
        if call := self.expect_at_most_one():
            return call
        raise RoundError("expected one call, found none; require one with tool_choice")

    async def apply_hooks(self, hooks: HookSet, *, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Ask the execution hooks about every call that can run; the plan takes the round's place (L21).

        Raises:
            RoundError: the round has moved on already.
        """
        return await self._plan.apply_hooks(hooks, context=context)

    def discard(self) -> None:
        """Drop the assistant's turn uncommitted (L15); `RoundError` if the round has moved on already."""
        self._plan.discard()


@dataclass(frozen=True, slots=True, eq=False)
class ToolRoundPlan:
    """What is to become of the calls of a round (L21).

    Attributes:
        pending: Calls still to run, with the arguments that hooks edited last (L19).
        handled: Calls that hooks have answered.
        rejected: Calls that were refused.
        issues: Calls that cannot be run; see `RoundIssue`.
    """

    pending: tuple[ToolCall, ...]
    handled: tuple[HandledCall, ...]
    rejected: tuple[RejectedCall, ...]
    issues: tuple[RoundIssue, ...]
    _turn: AssistantTurn
    _view: ToolView
    _hooks: HookSet
    _progress: _Progress

    @property
    def state(self) -> RoundState:
        """Where the round stands."""
        return self._progress.state

    @property
    def continue_suggestion(self) -> str | None:
        """Why the model should be asked once more, or `None` when no call had an issue (L21)."""
        if not self.issues:
            return None
        found = ", ".join(f"{issue.call.name}: {issue.reason}" for issue in self.issues)
        return f"the model can mend its calls ({found}) once it has read the results"

    async def apply_hooks(self, hooks: HookSet, *, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Ask more hooks, about the pending calls only; the new plan takes this one's place (L21).

        Raises:
            RoundError: the round has moved on already.
        """
        self._progress.require(self)
        answers = [await ask_hooks(call, self._view[call.name], hooks, context) for call in self.pending]
        plan = replace(
            self,
            pending=tuple(answer for answer in answers if isinstance(answer, ToolCall)),
            handled=(*self.handled, *(answer for answer in answers if isinstance(answer, HandledCall))),
            rejected=(*self.rejected, *(answer for answer in answers if isinstance(answer, RejectedCall))),
            _hooks=self._hooks.merged(hooks),
        )
        self._progress.hand_over(self, plan)
        return plan

    async def run_pending(
        self,
        *,
        timeout: float = RUN_DEADLINE,  # noqa: ASYNC109
        concurrency: int = RUN_CONCURRENCY,
        context: ToolContext = LOCAL_CONTEXT,
    ) -> list[CallResult]:
        """Run the pending calls concurrently; the results are in the calls' order (A11, A12).

        A tool that fails, or outstays its time, gives an error result, and its siblings finish.
        Nothing is committed, and a second run would run the tools again.

        Args:
            timeout: Seconds for each tool, from its start.
            concurrency: How many run at the same time.
            context: What the tools see of their surroundings.

        Raises:
            RoundError: the round has moved on already, or a number is not positive; nothing ran.
        """
        self._progress.require(self)
        results = await run_calls(self.pending, self._view, self._hooks, context, timeout, concurrency)
        calls = {call.id: call for call in self._turn.calls}
        return [
            CallResult(call.id, call.name, calls[call.id].arguments, result)
            for call, result in zip(self.pending, results, strict=True)
        ]

    def commit(self, results: Iterable[CallResult] = ()) -> RoundCommit:
        """Close the round with one result for every call (L14).

        What hooks have answered or refused is added here, and a standard rejection for every issue
        that has no result of its own among `results` (L22).

        Args:
            results: One for each pending call, in any order.

        Raises:
            RoundError: a result is missing, extra, given twice or of another call, or the round has
                moved on already; the message names each, and nothing has changed.
        """
        self._progress.require(self)
        given = list(results)
        if faults := self._faults(given):
            raise RoundError(f"the round is not committed: {'; '.join(faults)}")
        found = self._own_results() | {done.id: done.result for done in given}
        calls = self._turn.calls
        answers = tuple(CallResult(call.id, call.name, call.arguments, found[call.id]) for call in calls)
        self._progress.close(self, "committed")
        return RoundCommit(self._turn.message, answers)

    def discard(self) -> None:
        """Drop the assistant's turn uncommitted (L21); `RoundError` if the round has moved on already."""
        self._progress.close(self, "discarded")

    def _own_results(self) -> dict[str, ToolResult]:
        own = {done.call.id: done.result for done in self.handled}
        own |= {done.call.id: rejection(done.decision) for done in self.rejected}
        return own | {issue.call.id: rejection(Reject(issue.message, "policy")) for issue in self.issues}

    def _faults(self, results: Sequence[CallResult]) -> list[str]:
        calls = {call.id: call for call in self._turn.calls}
        open_ids = {call.id for call in self.pending} | {issue.call.id for issue in self.issues}
        faults: list[str] = []
        seen: set[str] = set()
        for done in results:
            if fault := _fault(done, calls.get(done.id), open_ids, seen):
                faults.append(f"call {done.id} ({done.name}) {fault}")
            seen.add(done.id)
        missing = (call for call in self.pending if call.id not in seen)
        return [*faults, *(f"call {call.id} ({call.name}) has no result; give one" for call in missing)]


def _fault(done: CallResult, call: AssistantCall | None, open_ids: set[str], seen: set[str]) -> str | None:
    if call is None:
        return "is not of this turn"
    if done.id not in open_ids:
        return "was already answered by a hook; leave its result out"
    if done.id in seen:
        return "has two results; give one"
    if done.name != call.name:
        return f"is a call of {call.name}; the result is of another tool"
    if done.arguments != call.arguments:
        return "has a result for other arguments; give those of the assistant's turn"
    return None


def _examined(call: AssistantCall, given: Arguments, view: ToolView, known: Container[str]) -> _Examined:
    binding = view.get(call.name)
    if binding is None or binding.deferred:
        missing = binding is None and call.name not in known
        reason = IssueReason.UNKNOWN_TOOL if missing else IssueReason.UNAVAILABLE_TOOL
        return RoundIssue(call, reason, str(UnknownToolError(call.name)))
    fault = f"Invalid arguments for {call.name}: "
    if isinstance(given, str) or isinstance(call.arguments, str):
        return RoundIssue(call, IssueReason.INVALID_JSON, f"{fault}they are not the JSON of an object")
    arguments = deepcopy(dict(given))
    if not binding.arguments.is_valid(arguments):
        faults = "; ".join(binding.arguments.problems(arguments))
        return RoundIssue(call, IssueReason.INVALID_ARGUMENTS, fault + faults)
    return ToolCall(call.name, arguments, call.id, deepcopy(call.arguments))
