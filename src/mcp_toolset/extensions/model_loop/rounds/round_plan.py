"""`ToolRoundPlan`: the calls of a round, and the steps that lead to their results.

`apply_hooks` returns a new plan and closes the old one, so that no plan without the last hooks is run by
mistake.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule, Rules
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    CallResult,
    GivenAnswer,
    GivenResult,
    HandledCall,
    OnToolError,
    RejectedCall,
    RoundCommit,
    RunReport,
    answer_result,
    is_placeholder,
    result_of,
    user_answer,
    within_budget,
)
from mcp_toolset.extensions.model_loop.rounds.round_status import RoundStanding
from mcp_toolset.extensions.model_loop.rounds.runner import (
    RUN_CONCURRENCY,
    RUN_DEADLINE,
    Answer,
    CallOutcome,
    CallRunner,
    RunOptions,
    ask_hooks_observed,
    running,
    tell_given,
    tell_invalid,
)
from mcp_toolset.extensions.model_loop.turns import AssistantCall
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context


@dataclass(frozen=True, slots=True, eq=False)
class ToolRoundPlan(RoundStanding):
    """The calls of a round, and the steps that lead to their results."""

    @property
    def newest(self) -> ToolRoundPlan:
        """The newest plan: this one, or the one that has replaced it."""
        return cast("ToolRoundPlan", self.progress.holder)

    async def apply_hooks(self, hooks: AnyRule, *, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Run more hooks on the pending calls without a result; a new plan replaces this one. See `apply`."""
        return await self.apply(hooks, context=context)

    async def apply(self, *rules: AnyRule, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Apply rules to the calls: hooks, middleware or both; the new plan replaces this one.

        A rule is `Rules`, a `HookSet`, a middleware, a policy object, one hook for every call
        (`async def hook(call[, input])`), or a list of these.

        Hooks run now, on the pending calls without a result. Middleware runs around the call in
        `run_pending`, and the hooks of a call with middleware run inside of it, as in a served call. A
        question of middleware, such as `"ask"` of a `PermissionChecker`, is a question of the round.

        Raises:
            RoundError: the round was continued by another plan, a step is running, or every call has run.
            UnknownNameError: a rule is for a tool that does not exist.
            DefinitionError: a value is not a rule; nothing has changed.
        """
        require_context(context)
        made = [one if isinstance(one, Rules | HookSet) else Rules.of(one) for one in rules]
        for one in made:
            one.check(self.view)
        added = Rules().merged(*made)
        around, merged = self.around.with_middleware(added), self.hooks.merged(added.hooks)
        answers: list[Answer] = []
        observers, round = around.rules.observers, self.progress.id
        with self.progress.doing(self, "asking hooks"):
            if made and self.pending and not self.unfinished():
                raise RoundError(
                    "every call of this round has run, so rules would protect nothing: apply them first"
                )
            tell_invalid(self.issues, self.view, context, observers=added.observers, round=round)
            for call in self.pending:
                if self.has_nothing(call) and around.guards(call, self.view):
                    around = around.asking(call, added.hooks)
                    answers.append(call)
                elif self.has_nothing(call):
                    hooks = (added.hooks, merged)
                    answers.append(
                        await ask_hooks_observed(
                            call, self.view, *hooks, context, observers=observers, round=round
                        )
                    )
                else:
                    answers.append(call)
        plan = replace(
            self,
            pending=tuple(answer for answer in answers if isinstance(answer, ToolCall)),
            handled=(*self.handled, *(answer for answer in answers if isinstance(answer, HandledCall))),
            rejected=(*self.rejected, *(answer for answer in answers if isinstance(answer, RejectedCall))),
            hooks=merged,
            around=around,
        )
        self.progress.holder = plan
        return plan

    async def run_pending(
        self,
        *,
        timeout: float = RUN_DEADLINE,  # noqa: ASYNC109
        concurrency: int = RUN_CONCURRENCY,
        context: ToolContext = LOCAL_CONTEXT,
        on_tool_error: OnToolError = "continue",
    ) -> RunReport:
        """Run the pending calls concurrently; the results are in the calls' order.

        Nothing is committed. Manual calls are not run but reported, and calls that have a result are
        not run again: a second run completes the first. A tool that fails, or exceeds its time, gives an
        error result; the other tools finish in any case.

        Args:
            timeout: Seconds for each tool without its own limit, from its start.
            concurrency: How many run at the same time.
            context: The context for the tools.
            on_tool_error: `"continue"`; `"halt"` to request the end of the loop in the report; or
                `def decide(failure) -> "continue" | "halt"`, sync or async.
        """
        async with self.stream_pending(
            timeout=timeout, concurrency=concurrency, context=context, on_tool_error=on_tool_error
        ) as finished:
            ran = [done.id async for done in finished]
        failed = self.progress.failures
        failures = tuple(failed[call.id] for call in self.pending if call.id in ran and call.id in failed)
        return RunReport(self.results, self.manual, self.questions, self.halt, failures)

    @asynccontextmanager
    async def stream_pending(
        self,
        *,
        timeout: float = RUN_DEADLINE,  # noqa: ASYNC109
        concurrency: int = RUN_CONCURRENCY,
        context: ToolContext = LOCAL_CONTEXT,
        on_tool_error: OnToolError = "continue",
    ) -> AsyncGenerator[AsyncIterator[CallResult]]:
        """Run the pending calls as `run_pending` does, and yield each result as it finishes.

        ```python
        async with plan.stream_pending() as finished:
            async for done in finished:
                ...
        plan.commit()
        ```

        Leaving the block early cancels the tools that still run; finished results stay in `results`.
        """
        options = RunOptions(context, timeout, concurrency, on_tool_error)
        with self.progress.doing(self, "running calls"):
            calls = self.to_run()
            answers = self.progress.answers
            runner = CallRunner(self.view, self.hooks, options, calls, self.around, answers, self.progress.id)
            async with running(runner, calls, self.progress.running, self._took) as finished:
                yield finished

    def submit(self, id: str, output: Any) -> CallResult:
        """Give the result of a manual call, or of a call with an issue, once.

        `output` is a text, a value with a JSON form, or a `ToolResult`. Raises `RoundError` if it is not due.
        """
        self.progress.require_open_to_results(self)
        call = self._submittable(id)
        result = result_of(call, output)
        if not result.is_complete:
            raise RoundError(f"the result for {call.name} ({id}) is not complete; submit it once it is")
        self.progress.give(id, result)
        return self._told(id)

    def answer(self, id: str, answer: GivenAnswer) -> CallResult | None:
        """Give the user's answer to a question.

        The answer to a tool's question becomes the result of the call. The answer to a question of
        middleware, such as `"ask"` of a `PermissionChecker`, has `run_pending` run the call.

        Args:
            id: The id of the call that asks.
            answer: A text; an object that fits the question's schema; `True` or `False` where the
                question is a confirmation; or `None` if the user declined.

        Returns:
            The result of the call, or `None` if it must still be run.
        """
        self.progress.require_open_to_results(self)
        if (ask := self.progress.questions.get(id)) is None:
            raise RoundError(f"call {id!r} has no open question; plan.questions lists the open ones")
        if id in self.progress.keys:
            self.progress.hear(id, user_answer(ask, answer))
            return None
        self.progress.give(id, answer_result(ask, answer))
        return self._told(id)

    def commit(
        self, results: Iterable[GivenResult] | None = None, *, max_output: int | None = None
    ) -> RoundCommit:
        """Close the round with one result for every call.

        Answers and refusals of hooks are added here, and a standard rejection for every issue without a
        result. A question without an answer is committed as a question, and can be read in the commit's
        `questions`. A call that middleware has not let through accepts only an error as its result.

        Args:
            results: One for each pending call, in any order; what was submitted or answered need not
                be repeated. Without it, the round's own `results` are committed.
            max_output: The largest number of characters of text in the commit, shared fairly by all
                results; by default unlimited. `results` keep the whole.

        Raises:
            RoundError: a result is missing, extra, given twice or of another call; nothing has changed.
        """
        self.progress.require_rest(self)
        if max_output is not None and max_output < 1:
            raise RoundError(f"max_output is a positive number of characters, not {max_output}")
        accepted = self.ledger().accepted(self.results if results is None else results)
        found = self.own_results() | accepted
        answers = tuple(
            CallResult(call.id, call.name, call.arguments, found[call.id]) for call in self.turn.calls
        )
        if max_output is not None:
            answers = within_budget(answers, max_output)
        unanswered = {done.id for done in answers if is_placeholder(done)}
        questions = tuple(asked for asked in self.questions if asked.id in unanswered)
        commit = RoundCommit(self.turn, answers, questions, self.halt)
        self.progress.close(self, "committed")
        self.progress.committed = commit
        return commit

    def discard(self) -> None:
        """Discard the assistant's turn; `RoundError` if the round was continued by another plan."""
        self.progress.close(self, "discarded")

    def to_state(self) -> dict[str, Any]:
        """The round as plain JSON data; see `ToolRound.to_state`."""
        from mcp_toolset.extensions.model_loop.rounds.round_record import stored

        if self.newest is not self:
            raise RoundError("a newer plan has replaced this one; store what apply_hooks returned")
        return stored(self)

    def _took(self, outcome: CallOutcome) -> CallResult | None:
        self.progress.take(outcome)
        return None if outcome.waits else self._result(outcome.call.id)

    def _told(self, id: str) -> CallResult:
        """Note a result from outside; observers are told."""
        done, observers = self._result(id), self.around.rules.observers
        call = next(call for call in self.turn.calls if call.id == id)
        tell_given(call, done.result, self.view, observers=observers, round=self.progress.id)
        return done

    def _result(self, id: str) -> CallResult:
        return next(done for done in self.results if done.id == id)

    def _submittable(self, id: str) -> AssistantCall:
        call = next((call for call in self.turn.calls if call.id == id), None)
        if call is None:
            raise RoundError(f"no call of this turn has the id {id!r}; plan.manual lists the calls that wait")
        if any(done.call.id == id for done in (*self.handled, *self.rejected)):
            raise RoundError(f"call {id} ({call.name}) was already answered by a hook")
        if id in self.progress.results:
            raise RoundError(f"call {id} ({call.name}) has a result already; submit one result for each call")
        if any(call.id == id and not self.is_manual(call) for call in self.pending):
            raise RoundError(
                f"call {id} ({call.name}) is automatic: run_pending runs it; to answer it in its tool's "
                "place, give the result to commit"
            )
        return call
