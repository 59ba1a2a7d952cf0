"""`RoundProgress`: the only mutable part of a round: its state and the results so far."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from mcp_toolset.calls.rounds.call_result import ToolFailure, placeholder
from mcp_toolset.calls.rounds.runner import CallOutcome
from mcp_toolset.errors import RoundError
from mcp_toolset.tools.core.asking import ElicitationAnswer
from mcp_toolset.tools.core.outcome import AskUser
from mcp_toolset.tools.core.result import ToolResult

if TYPE_CHECKING:
    from mcp_toolset.calls.rounds.round_commit import RoundCommit

RoundState = Literal["open", "committed", "discarded"]
"""The state of a round; the last two are final."""

Activity = Literal["asking hooks", "running calls"]
"""A step of a round that takes time."""


class RoundProgress:
    """The state of a round, the results so far, and the newest plan.

    Attributes:
        id: The id of the round, for observers of calls.
        state: The state of the round.
        holder: The newest plan.
        results: The results so far, by id.
        given: The ids of those results that came from the application or the user.
        questions: Questions without an answer, by the id of the call.
        keys: By the id of the call, the key of the answer to a question of middleware.
        answers: Answers to questions of middleware, by the id of the call and the key.
        halts: The reasons of the calls that request the end of the loop, by id.
        waiting: Calls of tools that turned out to be manual when they ran.
        running: Calls whose tools are running now.
        failures: Failures in this process, by id.
        committed: The committed round.
        activity: The running step, if any.
    """

    __slots__ = (
        "activity",
        "answers",
        "committed",
        "failures",
        "given",
        "halts",
        "holder",
        "id",
        "keys",
        "questions",
        "results",
        "running",
        "state",
        "waiting",
    )

    def __init__(self, id: str = "") -> None:
        """Start a round; a stored one has its id already."""
        self.id = id or secrets.token_hex(8)
        self.state: RoundState = "open"
        self.holder: object = None
        self.results: dict[str, ToolResult] = {}
        self.given: set[str] = set()
        self.questions: dict[str, AskUser] = {}
        self.keys: dict[str, str] = {}
        self.answers: dict[str, dict[str, ElicitationAnswer]] = {}
        self.halts: dict[str, str] = {}
        self.waiting: set[str] = set()
        self.running: set[str] = set()
        self.failures: dict[str, ToolFailure] = {}
        self.committed: RoundCommit | None = None
        self.activity: Activity | None = None

    def require(self, holder: object) -> None:
        """Check that the plan is the newest one of an open round."""
        if self.state != "open":
            raise RoundError(f"this round is already {self.state}; make one of the next assistant message")
        if self.holder is not holder:
            raise RoundError("a newer plan has replaced this one; go on with what apply_hooks returned")

    def require_rest(self, holder: object) -> None:
        """Check that no step is running."""
        self.require(holder)
        if self.activity is not None:
            raise RoundError(f"this round is {self.activity} just now; wait until that has ended")

    def require_open_to_results(self, holder: object) -> None:
        """Check that results may be given: also during a run, but not while hooks run."""
        self.require(holder)
        if self.activity == "asking hooks":
            raise RoundError("this round is asking hooks just now; wait until that has ended")

    @contextmanager
    def doing(self, holder: object, activity: Activity) -> Generator[None]:
        """Mark a step as running, so that no other step can start."""
        self.require_rest(holder)
        self.activity = activity
        try:
            yield
        finally:
            self.activity = None

    def close(self, holder: object, state: RoundState) -> None:
        """Enter a final state."""
        self.require_rest(holder)
        self.state = state

    def came_to(self, id: str) -> ToolResult | None:
        """The result of a call so far; a placeholder while its question has no answer."""
        ask = self.questions.get(id)
        return self.results.get(id) if ask is None else placeholder(ask)

    def take(self, outcome: CallOutcome) -> None:
        """Note the outcome of a call's run."""
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
        """Note the answer to a question of middleware; the call can be run again."""
        self.answers.setdefault(id, {})[self.keys.pop(id)] = answer
        del self.questions[id]

    def give(self, id: str, result: ToolResult) -> None:
        """Note a result from outside."""
        self.questions.pop(id, None)
        self.results[id] = result
        self.given.add(id)
