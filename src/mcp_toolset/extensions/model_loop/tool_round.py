"""`ToolRound`: one assistant turn with tool calls, from its message to a committed set of results.

A round goes from `open` to `committed` or `discarded`, once. Every step either succeeds or raises
`RoundError` and changes nothing. `ToolRoundPlan` has the steps in between; `to_state` returns the round as
plain data after any of them, and `SuspendedRounds` as a sealed text.

`apply` returns a new plan and closes the old one, so that no plan without the last hooks is run by mistake.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from types import TracebackType
from typing import Any, Final, Self, cast

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule, Rules
from mcp_toolset.calls.suspended import SUSPENDED_TTL, Sealer, SuspendedStore, digest_of
from mcp_toolset.errors import DefinitionError, RequestStateError, RoundError
from mcp_toolset.extensions.model_loop.calls import (
    NOTHING_OFFERED,
    AssistantCall,
    AssistantTurn,
    CallResult,
    GivenAnswer,
    GivenResult,
    HandledCall,
    InvalidCall,
    OnToolError,
    RejectedCall,
    RoundCommit,
    RunReport,
    answer_result,
    examined,
    is_placeholder,
    original_of,
    result_of,
    searched,
    turn_from_anthropic,
    turn_from_openai,
    turn_from_responses,
    user_answer,
    within_budget,
)
from mcp_toolset.extensions.model_loop.runner import (
    RUN_CONCURRENCY,
    RUN_TIMEOUT,
    Answer,
    CallOutcome,
    CallRunner,
    RoundProgress,
    RoundStanding,
    RoundState,
    RoundStatus,
    RunOptions,
    ask_hooks_observed,
    running,
    tell_given,
    tell_invalid,
)
from mcp_toolset.security.key_ring import KeyRing
from mcp_toolset.stores.store import StorePlace
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context
from mcp_toolset.tools.export import Export
from mcp_toolset.tools.validation import depth_exceeds
from mcp_toolset.tools.view import ToolView, required_view


@dataclass(frozen=True, slots=True, eq=False)
class ToolRoundPlan(RoundStanding):
    """The calls of a round, and the steps that lead to their results."""

    @property
    def newest(self) -> ToolRoundPlan:
        """The newest plan: this one, or the one that has replaced it."""
        return cast("ToolRoundPlan", self.progress.holder)

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
        made = [rule if isinstance(rule, Rules | HookSet) else Rules.of(rule) for rule in rules]
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
        timeout: float = RUN_TIMEOUT,
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
            concurrency: The number of calls that run at the same time.
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
        timeout: float = RUN_TIMEOUT,
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
        from mcp_toolset.extensions.model_loop.round_state import stored

        if self.newest is not self:
            raise RoundError("a newer plan has replaced this one; store what apply returned")
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


_SEARCHING: Final = ("anthropic", "openai_responses")  # They have a search of their own.
MAX_ARGUMENT_DEPTH: Final = 200  # Levels of a call's arguments, also as JSON text.


class ToolRound:
    """The tool calls of one model reply, validated: calls that can run, and invalid calls."""

    # Without other attributes: `round.rules = …` would protect nothing.
    __slots__ = ("_plan", "calls", "issues")

    def __init__(self, plan: ToolRoundPlan) -> None:
        self._plan = plan
        plan.progress.holder = plan
        self.calls = plan.calls
        self.issues = plan.issues

    @classmethod
    def of(cls, message: object, export: Export, *, known: Container[str] = ()) -> ToolRound:
        """A round from the model's reply to a request that offered `export`, for any provider.

        Changes made for the provider are undone: in names, in arguments, and for the `null` that strict mode
        makes the model send for an optional argument.

        Args:
            message: The reply, as for `from_openai` and the other constructors.
            export: The result of `view.export(…)` for the request.
            known: As in `from_openai`.
        """
        if isinstance(cast("object", export), ToolView) or not hasattr(export, "provider"):
            raise DefinitionError(
                f"ToolRound.of(…) takes the export of the request, not a {type(export).__name__}: "
                'give view.export("openai"), or use ToolRound.from_openai(message, view)'
            )
        if not isinstance(export.view, ToolView) or export.provider not in _READERS:
            raise DefinitionError(
                f"replies to this export for {export.provider} are not read here; make calls with "
                "export.call(name, arguments, id), and a round of them with ToolRound.from_calls"
            )
        return cls._of(_READERS[export.provider](message), export.view, known, export)

    @classmethod
    def from_openai(
        cls, message: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from the message of a chat completion.

        Args:
            message: A `ChatCompletionMessage`, or the same as a dictionary.
            view: The tools that were offered for this turn.
            known: Names of further tools that exist but were not offered (another view will do): their
                calls are issues with the reason `unavailable_tool`, like calls of tools of the view's
                toolset that are off.
            export: The result of `view.export(…)` for the request, if the tools were offered that way: it
                decodes names and arguments.

        Raises:
            RoundError: it is not an assistant message, or the ids of its calls are not unique.
        """
        return cls._of(turn_from_openai(message), view, known, export)

    @classmethod
    def from_openai_responses(
        cls, response: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from a `Response`, the same as a dictionary, or its output items; see `from_openai`."""
        return cls._of(turn_from_responses(response), view, known, export)

    @classmethod
    def from_anthropic(
        cls, message: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from the response of Anthropic's `messages.create`; see `from_openai`."""
        return cls._of(turn_from_anthropic(message), view, known, export)

    @classmethod
    def from_calls(
        cls, calls: Iterable[ToolCall], view: ToolView, *, known: Container[str] = ()
    ) -> ToolRound:
        """A round from decoded calls, each with a unique id; it fits every provider's messages."""
        required_view(view, "ToolRound.from_calls(…)")
        calls = list(calls)
        for call in calls:
            _check_arguments(call)
        made = tuple(AssistantCall(call.id, call.name, deepcopy(original_of(call))) for call in calls)
        pairs = zip(made, calls, strict=True)
        sorted_out = [examined(call, given.arguments, view, known) for call, given in pairs]
        return cls(_first_plan(AssistantTurn({}, made), sorted_out, view))

    @classmethod
    def _of(
        cls, turn: AssistantTurn, view: ToolView, known: Container[str], export: Export | None
    ) -> ToolRound:
        required_view(view, f"ToolRound.from_{turn.origin or 'calls'}(…)")
        if export is not None and not hasattr(export, "provider"):
            raise DefinitionError(
                f"export=… takes the result of view.export(…), not a {type(export).__name__}"
            )
        turn = turn.decoded(export)
        if export is None and turn.origin in _SEARCHING:
            _check_deferred(turn, view)
        offered = NOTHING_OFFERED if export is None else export.deferred
        sorted_out = [examined(call, call.arguments, view, known, offered) for call in turn.calls]
        if export is not None:
            sorted_out = searched(sorted_out, turn.calls, export)
        return cls(_first_plan(turn, sorted_out, view))

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        view: ToolView,
        *,
        known: Container[str] = (),
        hooks: AnyRule | None = None,
        rules: AnyRule | None = None,
    ) -> ToolRound:
        """Continue a round that was stored, in this process or another; `plan` has its state.

        Decisions, answers and results are kept. A call without a result becomes invalid if its tool no longer
        exists or its definition has changed. So does a call that was running when the round was stored,
        unless its tool is annotated `readOnlyHint` or `idempotentHint`.

        Args:
            state: The data from `to_state`, possibly via JSON.
            view: The present tools.
            known: As in `from_openai`.
            hooks: The hooks that were applied before, for what they must still see: results,
                and the calls behind calling tools.
            rules: The rules that were applied before; needed if they had middleware.

        Raises:
            RoundError: it is not a round's state, or of another version, or hooks or rules are missing.
        """
        from mcp_toolset.extensions.model_loop.round_state import restored

        required_view(view, "ToolRound.from_state(…)")
        return cls(restored(ToolRoundPlan, state, view, known, hooks, rules))

    def to_state(self) -> dict[str, Any]:
        """The round as plain JSON data; `RoundError` if a result has no JSON form."""
        return self.plan.to_state()

    @property
    def plan(self) -> ToolRoundPlan:
        """The newest plan, the only one that can continue."""
        return self._plan.newest

    @property
    def state(self) -> RoundState:
        """The state of the round."""
        return self._plan.state

    @property
    def status(self) -> RoundStatus:
        """The party that must act next."""
        return self.plan.status

    @property
    def committed(self) -> RoundCommit | None:
        """The commit, also of a round that was stored after it; `None` before."""
        return self.plan.progress.committed

    def expect_at_most_one(self) -> ToolCall | None:
        """The only call, or `None` if the turn has none; `RoundError` if there are several, or an issue."""
        if (count := len(self.calls) + len(self.issues)) > 1:
            raise RoundError(f"expected at most one call, found {count}; go through them all")
        if self.issues:
            raise RoundError(f"expected a call that can run: {self.issues[0].message}")
        return self.calls[0] if self.calls else None

    def expect_one(self) -> ToolCall:
        """The only call of the turn; `RoundError` unless there is one that can run."""
        if call := self.expect_at_most_one():
            return call
        raise RoundError("expected one call, found none; require one with tool_choice")

    async def apply(self, *rules: AnyRule, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Apply rules to the calls: hooks, middleware or both; see `ToolRoundPlan.apply`."""
        return await self._plan.apply(*rules, context=context)

    def discard(self) -> None:
        """Discard the assistant's turn; `RoundError` if the round was continued by a plan."""
        self._plan.discard()


_READERS: Final[Mapping[str, Callable[[object], AssistantTurn]]] = {
    "openai": turn_from_openai,
    "openai_responses": turn_from_responses,
    "anthropic": turn_from_anthropic,
}


def _check_deferred(turn: AssistantTurn, view: ToolView) -> None:
    """Refuse to judge calls of deferred tools without the export that says which of them were offered."""
    for call in turn.calls:
        binding = view.get(call.name)
        if binding is not None and binding.deferred:
            raise RoundError(
                f"{call.name} is a deferred tool, and only the export of the request says whether the model "
                "could find it: use ToolRound.of(message, export), or give export=…"
            )


def _check_arguments(call: ToolCall) -> None:
    if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(
            f"ToolRound.from_calls(…) takes ToolCalls, not {call!r}; for messages use ToolRound.from_openai, "
            "from_openai_responses or from_anthropic"
        )
    if not isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RoundError(
            f"call {call.id} ({call.name}) has {call.arguments!r} as arguments; give a dictionary"
        )
    if depth_exceeds([call.arguments, call.original], MAX_ARGUMENT_DEPTH):
        raise RoundError(
            f"the arguments of call {call.id} ({call.name}) are nested more than {MAX_ARGUMENT_DEPTH} levels "
            "deep; flatten them"
        )


def _first_plan(
    turn: AssistantTurn, sorted_out: Iterable[ToolCall | InvalidCall], view: ToolView
) -> ToolRoundPlan:
    found = list(sorted_out)
    pending = tuple(call for call in found if isinstance(call, ToolCall))
    issues = tuple(call for call in found if isinstance(call, InvalidCall))
    return ToolRoundPlan(pending, (), (), issues, turn, view, HookSet(), RoundProgress())


_KIND: Final = "suspended round"
_MEND: Final = "show the model its turn again"


class SuspendedRounds:
    """Suspends rounds, and resumes them for the same caller, while its `async with` block is open.

    With a `JournalGuard` among the rules, a call that ran after the round was suspended does not run again.
    """

    def __init__(
        self,
        store: StorePlace | KeyRing,
        *,
        keys: KeyRing | None = None,
        ttl: float = SUSPENDED_TTL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Seal with the keys of a store.

        Args:
            store: The path of a file, the URL of a store, or a `Store`. It has the keys, and knows which
                texts were used: each is used once. A `KeyRing` alone knows no use, and is not opened.
            keys: Seals the rounds in place of the keys of the store.
            ttl: Seconds for which a round can be resumed.
            clock: Seconds since the epoch.
        """
        require_positive("SuspendedRounds", ttl=ttl)
        ring = store if isinstance(store, KeyRing) else keys
        self._store = SuspendedStore(None if isinstance(store, KeyRing) else store, keys=ring)
        self._once = None if isinstance(store, KeyRing) else self._store.used(_KIND)
        self._ttl = ttl
        self._sealer = Sealer(_KIND, lambda: ring or self._store.keys, mend=_MEND, clock=clock)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        await self._open.enter_async_context(self._store.running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self._open.aclose()

    def suspend(self, round: ToolRound | ToolRoundPlan, *, context: ToolContext = LOCAL_CONTEXT) -> str:
        """The round as a text, to be kept anywhere; it goes on for the principal and session of `context`."""
        state, what = round.to_state(), digest_of(context.session or "")
        return self._sealer.seal(state, who=context.principal, what=what, ttl=self._ttl)

    async def resume(
        self,
        text: str,
        view: ToolView,
        *,
        known: Container[str] = (),
        context: ToolContext = LOCAL_CONTEXT,
        hooks: AnyRule | None = None,
        rules: AnyRule | None = None,
    ) -> ToolRound:
        """Go on with a round, here or in another process; see `ToolRound.from_state`.

        Args:
            text: The result of `suspend`.
            view: The present tools. A call whose tool has changed since, or is gone, becomes invalid.
            known: As in `from_openai`.
            context: The context that the calls will run with.
            hooks: The hooks that were applied before.
            rules: The rules that were applied before, such as the journal.

        Raises:
            RoundError: the text cannot be used, here, now or any more; or hooks or rules are missing.
            StoreError: it cannot be known now whether it was used.
        """
        what = digest_of(context.session or "")
        try:
            suspended = self._sealer.open(text, who=context.principal, what=what)
            made = ToolRound.from_state(suspended.data, view, known=known, hooks=hooks, rules=rules)
            ttl = 2 * self._ttl
            if self._once is not None and not await self._once.use(suspended.id, ttl=ttl):
                raise self._sealer.refused("it was used before; see what its calls have done")
        except RequestStateError as fault:
            raise RoundError(str(fault)) from None
        return made
