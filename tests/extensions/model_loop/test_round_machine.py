"""Whatever happens to a round, in whatever order: each call gets one result, or nothing moved (L14, A16)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.extensions.model_loop.turns import told, turn

from mcp_toolset import (
    AskUser,
    Complete,
    Halt,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolResult,
    Toolset,
    tool,
)
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.rounds import CallResult, ToolRound

runs: list[int] = []


@tool
async def work(n: int) -> str:
    runs.append(n)
    return f"ran {n}"


@tool
async def ask(n: int) -> str | AskUser:
    runs.append(n)
    return AskUser(f"how about {n}?")


@tool
async def stop(n: int) -> str | Halt:
    runs.append(n)
    return Halt(f"because of {n}", f"halted {n}")


@tool
async def fail(n: int) -> str:
    runs.append(n)
    raise ValueError(f"no {n}")


@tool(manual=True)
async def pay(n: int) -> str:
    raise AssertionError("a manual tool is never run by itself")


VIEW = Toolset(work, ask, stop, fail, pay).view()
KINDS = ("work", "ask", "stop", "fail", "pay", "unknown", "unfit")
VERDICTS = ("run", "run", "edit", "complete", "reject")
PICK = st.integers(0, 99)


@dataclass
class Expected:
    """What a call should be like, kept without the code under test."""

    id: str
    kind: str
    n: int
    final: str | None = None
    asked: bool = False
    decided: bool = False

    @property
    def has_issue(self) -> bool:
        return self.kind in ("unknown", "unfit")

    @property
    def to_run(self) -> bool:
        return self.kind != "pay" and self.undecided

    @property
    def undecided(self) -> bool:
        return not self.has_issue and self.final is None and not self.asked

    def run(self) -> None:
        finals = {"work": "ran {}", "stop": "halted {}", "fail": "Error: fail failed: no {}"}
        self.asked = self.kind == "ask"
        if not self.asked:
            self.final = finals[self.kind].format(self.n)

    def committed(self) -> str | None:
        """What the model is told; `None` for any rejection."""
        return (
            f"The user was asked: how about {self.n}?\nThere is no answer yet." if self.asked else self.final
        )


class Round(RuleBasedStateMachine):
    """Hooks, runs, results, answers, commits that must fail, storing and restoring, in any order."""

    def __init__(self) -> None:
        super().__init__()
        runs.clear()
        self.calls: list[Expected] = []
        self.expected_runs: list[int] = []
        self.stale: list[ToolRoundPlan] = []
        self.closed = False

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    def start(self, kinds: list[str]) -> None:
        self.calls = [Expected(f"c{place}", kind, 10 * place) for place, kind in enumerate(kinds)]
        names = {"unknown": "nowhere", "unfit": "work"}
        self.sent = {call.id: {"n": "one"} if call.kind == "unfit" else {"n": call.n} for call in self.calls}
        self.message = turn(
            *(
                (call.id, names.get(call.kind, call.kind), json.dumps(self.sent[call.id]))
                for call in self.calls
            )
        )
        self.plan = ToolRound.from_openai(self.message, VIEW).plan

    @precondition(lambda self: not self.closed)
    @rule(verdicts=st.lists(st.sampled_from(VERDICTS), min_size=6, max_size=6))
    def hooks(self, verdicts: list[str]) -> None:
        chosen = {call.id: verdict for call, verdict in zip(self.calls, verdicts, strict=False)}
        pending = [call for call in self.calls if not call.has_issue and not call.decided]
        # Once every call has run, hooks could decide nothing.
        allowed = not pending or any(call.final is None for call in pending)
        plan = self._attempt(lambda: anyio.run(self.plan.apply, _hooks(chosen)), allowed)
        if not allowed:
            return
        self.stale.append(self.plan)
        self.plan = plan
        for call in self.calls:
            if call.undecided:
                call.n += chosen[call.id] == "edit"
                call.final = {"complete": "completed", "reject": "Rejected: no"}.get(chosen[call.id])
                call.decided = call.final is not None

    @precondition(lambda self: not self.closed)
    @rule(concurrency=st.integers(1, 3), halting=st.booleans())
    def run(self, concurrency: int, halting: bool) -> None:
        async def run() -> list[CallResult]:
            policy = "halt" if halting else "continue"
            return list(await self.plan.run_pending(concurrency=concurrency, on_tool_error=policy))

        anyio.run(run)
        for call in self.calls:
            if call.to_run:
                self.expected_runs.append(call.n)
                call.run()

    @precondition(lambda self: not self.closed)
    @rule()
    def run_one(self) -> None:
        """Leave a stream after its first result; what has finished by then is not run again."""

        async def run() -> None:
            async with self.plan.stream_pending(concurrency=1) as finished:
                async for _ in finished:
                    break

        anyio.run(run)
        done = {result.id for result in self.plan.results}
        for call in self.calls:
            if call.to_run and call.id in done:
                self.expected_runs.append(call.n)
                call.run()

    @precondition(lambda self: not self.closed)
    @rule(pick=PICK)
    def submit(self, pick: int) -> None:
        call = self.calls[pick % len(self.calls)]
        allowed = (call.kind == "pay" or call.has_issue) and call.final is None
        self._attempt(lambda: self.plan.submit(call.id, f"given {pick}"), allowed)
        if allowed:
            call.final = f"given {pick}"

    @precondition(lambda self: not self.closed)
    @rule(pick=PICK)
    def answer(self, pick: int) -> None:
        call = self.calls[pick % len(self.calls)]
        allowed = call.asked
        self._attempt(lambda: self.plan.answer(call.id, f"answer {pick}"), allowed)
        if allowed:
            call.final, call.asked = f"answer {pick}", False

    @rule()
    def store_and_restore(self) -> None:
        state = json.loads(json.dumps(self.plan.to_state(), allow_nan=False))
        restored = ToolRound.from_state(state, VIEW)
        assert restored.to_state() == state
        self.plan = restored.plan
        self.stale.clear()

    @precondition(lambda self: self.stale)
    @rule(pick=PICK)
    def go_on_with_a_plan_that_was_replaced(self, pick: int) -> None:
        old = self.stale[pick % len(self.stale)]
        self._attempt(old.commit, False)
        self._attempt(old.discard, False)

    @precondition(lambda self: not self.closed)
    @rule(pick=PICK, fault=st.sampled_from(["drop", "twice", "stranger", "renamed", "rewritten", "decided"]))
    def commit_wrongly(self, pick: int, fault: str) -> None:
        results = _results(self.plan)
        by_id = {result.id: result for result in results}
        call = self.calls[pick % len(self.calls)]
        done = by_id.get(call.id)
        others = [result for result in results if result.id != call.id]
        if fault == "stranger":
            wrong = [*results, CallResult("c99", "work", {"n": 1}, ToolResult.of_text(""))]
        elif fault == "decided" and call.decided:
            wrong = [
                *results,
                CallResult(call.id, call.kind, self.sent[call.id], ToolResult.of_text("again")),
            ]
        elif done is None or fault == "decided" or (fault == "drop" and _was_given(call)):
            return
        else:
            spoiled = {
                "drop": [],
                "twice": [done, done],
                "renamed": [replace(done, name="other")],
                "rewritten": [replace(done, arguments={"n": -1})],
            }
            wrong = others + spoiled[fault]
        self._attempt(lambda: self.plan.commit(wrong), False)

    @rule(pick=PICK)
    def commit(self, pick: int) -> None:
        missing = any(call.undecided for call in self.calls)
        asked = {call.id for call in self.calls if call.asked}
        given = {call.id for call in self.calls if _was_given(call)}
        all_of_them = list(reversed(self.plan.results))
        results = (None, all_of_them, [done for done in all_of_them if done.id not in given])[pick % 3]
        committed = self._attempt(lambda: self.plan.commit(results), not missing and not self.closed)
        if committed is None:
            return
        self.closed = True
        messages = committed.to_openai()
        assert messages[0] == self.message
        assert list(told(messages)) == [call.id for call in self.calls]
        for call, content in zip(self.calls, told(messages).values(), strict=True):
            expected = call.committed()
            assert content == expected or (expected is None and content.startswith("Rejected: "))
        assert {asked.id for asked in committed.questions} == asked
        assert {result.id: result.arguments for result in committed.results} == self.sent

    @invariant()
    def nothing_runs_twice_or_by_itself(self) -> None:
        assert sorted(runs) == sorted(self.expected_runs)

    @precondition(lambda self: self.calls)
    @invariant()
    def the_plan_says_who_has_to_act(self) -> None:
        waiting = [call.id for call in self.calls if call.kind == "pay" and call.undecided]
        assert [call.id for call in self.plan.manual] == waiting
        assert [asked.id for asked in self.plan.questions] == [call.id for call in self.calls if call.asked]
        assert (self.plan.state == "committed") == self.closed
        if self.closed:
            assert self.plan.status == "completed"
        elif self.plan.status != "error":
            expected = "awaiting_user" if self.plan.questions else "awaiting_tools" if waiting else "idle"
            assert self.plan.status == ("idle" if any(call.to_run for call in self.calls) else expected)

    def _attempt(self, step: Callable[[], Any], allowed: bool) -> Any:
        """Take a step that must succeed, or must be refused with everything as it was."""
        if allowed:
            return step()
        before = self.plan.to_state()
        with pytest.raises(RoundError):
            step()
        assert self.plan.to_state() == before
        return None


def _was_given(call: Expected) -> bool:
    return call.final is not None and call.final.startswith(("given", "answer"))


def _results(plan: ToolRoundPlan) -> list[CallResult]:
    """One result for every pending call: what there is, or one of the application's own."""
    found = {done.id: done for done in plan.results}
    return [found.get(call.id) or CallResult.of(call, "own") for call in plan.pending]


def _hooks(verdicts: dict[str, str]) -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        made: dict[str, Any] = {
            "run": RunNormally(input),
            "edit": RunNormally({"n": input["n"] + 1}),
            "complete": Complete("completed"),
            "reject": Reject("no"),
        }
        return made[verdicts[call.id]]

    return hooks


TestRound = Round.TestCase
TestRound.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
