"""`RoundProgress`: the mutable part of a round; `RoundStatus`: the readable half of `ToolRoundPlan`."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field
from typing import Literal

from mcp_toolset._records import dataclass
from mcp_toolset.calls.decision import Reject, rejection
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    CallResult,
    HandledCall,
    InvalidCall,
    Ledger,
    RejectedCall,
    RoundCommit,
    RoundHalt,
    RoundQuestion,
    ToolFailure,
    placeholder,
)
from mcp_toolset.extensions.model_loop.rounds.runner import Around, CallOutcome
from mcp_toolset.extensions.model_loop.turns import AssistantTurn
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, ToolResult
from mcp_toolset.tools.view import ToolBinding, ToolView

RoundState = Literal["open", "committed", "discarded"]  # The state of a round; the last two are final.

Activity = Literal["asking hooks", "running calls"]  # A step of a round that takes time.


@dataclass(slots=True, eq=False)
class RoundProgress:
    """The state of a round, the results so far, and the newest plan."""

    id: str = ""
    state: RoundState = "open"
    holder: object = None  # The newest plan.
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    # The ids of those results that came from the application or the user.
    given: set[str] = field(default_factory=set[str])
    # Questions without an answer, by the id of the call.
    questions: dict[str, AskUser] = field(default_factory=dict[str, AskUser])
    # By the id of the call, the key of the answer to a question of middleware.
    keys: dict[str, str] = field(default_factory=dict[str, str])
    # Answers to questions of middleware, by the id of the call and the key.
    answers: dict[str, dict[str, ElicitationAnswer]] = field(
        default_factory=dict[str, dict[str, ElicitationAnswer]]
    )
    # The reasons of the calls that request the end of the loop, by id.
    halts: dict[str, str] = field(default_factory=dict[str, str])
    # Calls of tools that turned out to be manual when they ran.
    waiting: set[str] = field(default_factory=set[str])
    running: set[str] = field(default_factory=set[str])  # Calls whose tools are running now.
    # Failures in this process, by id.
    failures: dict[str, ToolFailure] = field(default_factory=dict[str, ToolFailure])
    committed: RoundCommit | None = None
    activity: Activity | None = None

    def __post_init__(self) -> None:
        self.id = self.id or secrets.token_hex(8)

    def require(self, holder: object) -> None:
        if self.state != "open":
            raise RoundError(f"this round is already {self.state}; make one of the next assistant message")
        if self.holder is not holder:
            raise RoundError("a newer plan has replaced this one; go on with what apply_hooks returned")

    def require_rest(self, holder: object) -> None:
        self.require(holder)
        if self.activity is not None:
            raise RoundError(f"this round is {self.activity} just now; wait until that has ended")

    def require_open_to_results(self, holder: object) -> None:
        self.require(holder)
        if self.activity == "asking hooks":
            raise RoundError("this round is asking hooks just now; wait until that has ended")

    @contextmanager
    def doing(self, holder: object, activity: Activity) -> Generator[None]:
        self.require_rest(holder)
        self.activity = activity
        try:
            yield
        finally:
            self.activity = None

    def close(self, holder: object, state: RoundState) -> None:
        self.require_rest(holder)
        self.state = state

    def came_to(self, id: str) -> ToolResult | None:
        ask = self.questions.get(id)
        return self.results.get(id) if ask is None else placeholder(ask)

    def take(self, outcome: CallOutcome) -> None:
        id = outcome.call.id
        if outcome.halt is not None:
            self.halts[id] = outcome.halt
        if outcome.failure is not None:
            self.failures[id] = outcome.failure
        if outcome.waits:
            self.waiting.add(id)
        elif outcome.ask is not None:
            self.questions[id] = outcome.ask
            if outcome.key:
                self.keys[id] = outcome.key
        else:
            self.results[id] = outcome.result

    def hear(self, id: str, answer: ElicitationAnswer) -> None:
        self.answers.setdefault(id, {})[self.keys.pop(id)] = answer
        del self.questions[id]

    def give(self, id: str, result: ToolResult) -> None:
        self.questions.pop(id, None)
        self.results[id] = result
        self.given.add(id)


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
    """The state of a round's calls."""

    # Calls that no hook has answered or refused, with their arguments after all hooks; a call remains here
    # when it has a result.
    pending: tuple[ToolCall, ...]
    handled: tuple[HandledCall, ...]  # Calls that hooks answered.
    rejected: tuple[RejectedCall, ...]  # Calls that were refused.
    issues: tuple[InvalidCall, ...]  # Calls that cannot run; see `InvalidCall`.
    turn: AssistantTurn = field(repr=False)
    view: ToolView = field(repr=False)
    hooks: HookSet = field(repr=False)
    progress: RoundProgress = field(repr=False)  # The mutable part; only the steps of a plan change it.
    around: Around = field(default_factory=Around, repr=False)  # The middleware that was applied.

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
        """True if a call must still pass middleware."""
        return self.around.guards(call, self.view) and not self._is_through(call)

    def _is_through(self, call: ToolCall) -> bool:
        return call.id in self.progress.waiting or self._asks(call)

    def _carries(self, call: ToolCall) -> bool:
        """True if a call must pass rules that its toolset carries, which run with it."""
        binding: ToolBinding | None = self.view.get(call.name)
        return binding is not None and binding.redirect is None and bool(binding.carried)

    def _asks(self, call: ToolCall) -> bool:
        return call.id in self.progress.questions and call.id not in self.progress.keys

    def is_manual(self, call: ToolCall) -> bool:
        """True if a pending call is left to the application; its middleware comes first."""
        binding: ToolBinding | None = self.view.get(call.name)
        if call.id in self.progress.waiting or binding is None or not binding.manual:
            return call.id in self.progress.waiting
        return not self.around.guards(call, self.view) and not self._carries(call)

    def has_nothing(self, call: ToolCall) -> bool:
        """True if a call has neither a result nor a question yet."""
        return call.id not in self.progress.results and call.id not in self.progress.questions

    def ledger(self) -> Ledger:
        """The calls and results that a commit is checked against."""
        given = {id: self.progress.results[id] for id in self.progress.given}
        return Ledger(
            calls={call.id: call for call in self.turn.calls},
            pending=[call.id for call in self.pending],
            manual=frozenset(call.id for call in self.pending if self.is_manual(call)),
            issues=frozenset(issue.call.id for issue in self.issues),
            given=given,
            guarded=frozenset(
                call.id
                for call in self.unfinished()
                if self.is_guarded(call) or (self._carries(call) and not self._is_through(call))
            ),
        )

    def own_results(self) -> dict[str, ToolResult]:
        """Answers and refusals of hooks, and a standard rejection for every issue."""
        own = {done.call.id: done.result for done in (*self.handled, *self.rejected)}
        return own | {issue.call.id: rejection(Reject(issue.message, "policy")) for issue in self.issues}
