"""`RoundStatus`: the state of a round's calls; the readable half of `ToolRoundPlan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mcp_toolset.calls.pipeline.decision import Reject
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.rejection import rejection
from mcp_toolset.calls.providers.turn import AssistantTurn
from mcp_toolset.calls.rounds.call_result import (
    CallResult,
    HandledCall,
    RejectedCall,
    RoundHalt,
    RoundQuestion,
)
from mcp_toolset.calls.rounds.invalid_call import InvalidCall
from mcp_toolset.calls.rounds.round_commit import Ledger
from mcp_toolset.calls.rounds.round_progress import RoundProgress, RoundState
from mcp_toolset.calls.rounds.round_rules import Around
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding, ToolView

RoundStatus = Literal["idle", "awaiting_user", "awaiting_tools", "completed", "error"]
"""Who must act next.

- `idle`: the loop: run the pending calls, or commit.
- `awaiting_user`: the user, who must answer the questions.
- `awaiting_tools`: the application, which must give the results of manual calls.
- `completed`: none; the round is committed or discarded.
- `error`: the owner of the loop, as `on_tool_error` halted it; the round can still be committed.
"""


@dataclass(frozen=True, slots=True, eq=False)
class RoundStanding:
    """The state of a round's calls.

    Attributes:
        pending: Calls that no hook has answered or refused, with the arguments after all hooks. A call
            remains here when it has a result.
        handled: Calls that hooks answered.
        rejected: Calls that were refused.
        issues: Calls that cannot run; see `InvalidCall`.
        turn: The assistant's turn.
        view: The tools.
        hooks: Every hook that was applied.
        progress: The mutable part; only the steps of a plan change it.
        around: The middleware that was applied.
    """

    pending: tuple[ToolCall, ...]
    handled: tuple[HandledCall, ...]
    rejected: tuple[RejectedCall, ...]
    issues: tuple[InvalidCall, ...]
    turn: AssistantTurn = field(repr=False)
    view: ToolView = field(repr=False)
    hooks: HookSet = field(repr=False)
    progress: RoundProgress = field(repr=False)
    around: Around = field(default_factory=Around, repr=False)

    @property
    def state(self) -> RoundState:
        """The state of the round."""
        return self.progress.state

    @property
    def status(self) -> RoundStatus:
        """Who must act next."""
        if self.state != "open":
            return "completed"
        if "error" in self.progress.halts.values():
            return "error"
        if self.to_run():
            return "idle"
        if self.progress.questions:
            return "awaiting_user"
        return "awaiting_tools" if self.manual else "idle"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every call of the turn without an issue, in its order."""
        decided = [done.call for done in (*self.handled, *self.rejected)]
        by_id = {call.id: call for call in (*self.pending, *decided)}
        return tuple(by_id[call.id] for call in self.turn.calls if call.id in by_id)

    @property
    def manual(self) -> tuple[ToolCall, ...]:
        """The pending calls that wait for the application; `submit` takes their results."""
        return tuple(call for call in self.pending if self.is_manual(call) and self.has_nothing(call))

    @property
    def questions(self) -> tuple[RoundQuestion, ...]:
        """Questions of tools to the user; `answer` takes the answers."""
        asked = self.progress.questions
        return tuple(
            RoundQuestion(call.id, call.name, asked[call.id].question, asked[call.id].schema)
            for call in self.turn.calls
            if call.id in asked
        )

    @property
    def results(self) -> tuple[CallResult, ...]:
        """All results so far, in the order of the calls."""
        found = ((call, self.progress.came_to(call.id)) for call in self.turn.calls)
        return tuple(
            CallResult(call.id, call.name, call.arguments, result)
            for call, result in found
            if result is not None
        )

    @property
    def halt(self) -> RoundHalt | None:
        """A request to end the loop after this round, from the first call that made one."""
        halts = self.progress.halts
        said = (call for call in self.turn.calls if call.id in halts)
        return next((RoundHalt(call.id, call.name, halts[call.id]) for call in said), None)

    @property
    def continue_suggestion(self) -> str | None:
        """Why the model should be asked again, or `None` if no call had an issue."""
        if not self.issues:
            return None
        found = ", ".join(f"{issue.call.name}: {issue.reason}" for issue in self.issues)
        return f"the model can mend its calls ({found}) once it has read the results"

    def to_run(self) -> list[ToolCall]:
        """The pending calls that `run_pending` must still run."""
        return [call for call in self.pending if not self.is_manual(call) and self.has_nothing(call)]

    def unfinished(self) -> list[ToolCall]:
        """The pending calls without a result, with or without an open question."""
        return [call for call in self.pending if call.id not in self.progress.results]

    def is_guarded(self, call: ToolCall) -> bool:
        """Whether a call must still pass middleware."""
        is_through = call.id in self.progress.waiting or self._asks(call)
        return self.around.guards(call, self.view) and not is_through

    def _asks(self, call: ToolCall) -> bool:
        """Whether its tool has run and asks the user."""
        return call.id in self.progress.questions and call.id not in self.progress.keys

    def is_manual(self, call: ToolCall) -> bool:
        """Whether a pending call is left to the application; its middleware comes first."""
        binding: ToolBinding | None = self.view.get(call.name)
        if call.id in self.progress.waiting or binding is None or not binding.manual:
            return call.id in self.progress.waiting
        return not self.around.guards(call, self.view)

    def has_nothing(self, call: ToolCall) -> bool:
        """Whether a call has neither a result nor a question yet."""
        return call.id not in self.progress.results and call.id not in self.progress.questions

    def ledger(self) -> Ledger:
        """What a commit is checked against."""
        given = {id: self.progress.results[id] for id in self.progress.given}
        return Ledger(
            calls={call.id: call for call in self.turn.calls},
            pending=[call.id for call in self.pending],
            manual=frozenset(call.id for call in self.pending if self.is_manual(call)),
            issues=frozenset(issue.call.id for issue in self.issues),
            given=given,
            guarded=frozenset(call.id for call in self.unfinished() if self.is_guarded(call)),
        )

    def own_results(self) -> dict[str, ToolResult]:
        """Answers and refusals of hooks, and a standard rejection for every issue."""
        own = {done.call.id: done.result for done in (*self.handled, *self.rejected)}
        return own | {issue.call.id: rejection(Reject(issue.message, "policy")) for issue in self.issues}
