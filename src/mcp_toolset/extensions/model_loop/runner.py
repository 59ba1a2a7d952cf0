"""`CallRunner`: run the tools of a round concurrently, each with its deadline, under hooks and middleware.

A question of a middleware or of a hook inside it is a question of the round. At that time the tool has not
run; with the answer the call runs again from the start, and the question is answered at once.

`RoundProgress` is the mutable part of a round, `RoundStanding` the readable half of its plan.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import InitVar, field
from typing import Any, Final, Literal, cast

import anyio

from mcp_toolset import errors
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.decision import Complete, Reject, rejection, rejection_reason
from mcp_toolset.calls.dispatch import ToolDispatch, completed, copied_call
from mcp_toolset.calls.hook_chain import run_execution_hooks, run_result_hooks
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.observers import CallObserver, Observation, digest_of, noting, report_of, tell
from mcp_toolset.calls.rules import Rules
from mcp_toolset.concurrency.tasks import CancelledError
from mcp_toolset.extensions.model_loop.calls import (
    AssistantCall,
    AssistantTurn,
    CallResult,
    HandledCall,
    InvalidCall,
    Ledger,
    OnToolError,
    RejectedCall,
    RoundCommit,
    RoundHalt,
    RoundQuestion,
    ToolFailure,
    Verdict,
    placeholder,
)
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, InputRequired, ToolResult, elicitation
from mcp_toolset.tools.view import ToolBinding, ToolView

Answer = ToolCall | HandledCall | RejectedCall  # The outcome of hooks: answered, refused or to be run.


async def ask_hooks(
    call: ToolCall, view: ToolView, hooks: HookSet, seeing: HookSet, context: ToolContext
) -> Answer:
    """Run a tool's hooks on a call, after its gate; `seeing` see the answer. `call_tool` waits."""
    binding = view[call.name]
    if binding.redirect is not None:
        return call
    found = await run_execution_hooks(call, binding, hooks.execution_hooks(binding, view.names), context)
    if isinstance(found, ToolCall):
        return found
    call, decision = found
    try:
        made = completed(binding, decision) if isinstance(decision, Complete) else decision
    except errors.InvalidOutputError as fault:
        made = Reject(str(fault))
    shown_to = seeing.result_hooks(binding, view.names)
    if isinstance(made, Reject):
        return RejectedCall(call, made, await run_result_hooks(call, rejection(made), shown_to, context))
    return HandledCall(call, await run_result_hooks(call, made, shown_to, context))


def asks_anything(hooks: HookSet, view: ToolView) -> bool:
    names = view.names
    return any(hooks.execution_hooks(one, names) or hooks.result_hooks(one, names) for one in view.values())


class HooksLeft(HookSet):
    """The hooks that a run of calls must still ask: all but the execution hooks outside of middleware."""

    def __init__(self, hooks: HookSet, inside: HookSet | None = None) -> None:
        super().__init__()
        vars(self).update(vars(hooks))
        execution = [] if inside is None else [*inside._hooks["execution"]]
        self._hooks = {**hooks._hooks, "execution": execution}


async def ask_hooks_observed(
    call: ToolCall,
    view: ToolView,
    hooks: HookSet,
    seeing: HookSet,
    context: ToolContext,
    *,
    observers: Sequence[CallObserver],
    round: str,
) -> Answer:
    if not observers:
        return await ask_hooks(call, view, hooks, seeing, context)
    digest = digest_of(observers)
    seen = Observation(binding=view[call.name], arguments=digest(call.arguments) if digest else "")
    with noting(seen):
        answer = await ask_hooks(call, view, hooks, seeing, context)
    if not isinstance(answer, ToolCall):
        tell(observers, replace(report_of(seen, call, context, answer.result), round=round))
    return answer


def tell_invalid(
    invalid: Iterable[InvalidCall],
    view: ToolView,
    context: ToolContext,
    *,
    observers: Sequence[CallObserver],
    round: str,
) -> None:
    if not observers:
        return
    for issue in invalid:
        call, seen = (
            ToolCall(issue.call.name, {}, issue.call.id),
            Observation(binding=view.get(issue.call.name)),
        )
        report = report_of(seen, call, context, None)
        reason = issue.reason.value.replace("_", " ")
        tell(observers, replace(report, outcome="refused", reason=reason, round=round))


def tell_given(
    call: AssistantCall, result: ToolResult, view: ToolView, *, observers: Sequence[CallObserver], round: str
) -> None:
    if not observers:
        return
    seen = Observation(binding=view.get(call.name))
    report = report_of(seen, ToolCall(call.name, {}, call.id), LOCAL_CONTEXT, result)
    tell(observers, replace(report, round=round))


Answers = dict[str, ElicitationAnswer]  # A user's answers by their keys; and the edits of hooks.


@dataclass(frozen=True, slots=True)
class Around:
    """The middleware around the calls of a round, and by the ids of such calls the hooks `inside`."""

    rules: Rules = field(default_factory=Rules)
    inside: Mapping[str, HookSet] = field(default_factory=dict[str, HookSet])
    had_hooks: bool = False

    def guards(self, call: ToolCall, view: ToolView) -> bool:
        is_inside = call.id in self.inside
        if call.name not in view or not (is_inside or self.rules.guards or self.rules.has_middleware):
            return False
        binding = view[call.name]
        guarded = is_inside or self.rules.guards or self.rules.around(binding, view.names)
        return binding.redirect is None and bool(guarded)

    def with_middleware(self, added: Rules) -> Around:
        return replace(self, rules=replace(self.rules.merged(added), hooks=HookSet()))

    def asking(self, call: ToolCall, hooks: HookSet) -> Around:
        own = self.inside.get(call.id, HookSet(timeout=hooks.timeout))
        return replace(self, inside={**self.inside, call.id: own.merged(hooks)})

    def rules_of(self, call: ToolCall, hooks: HookSet) -> Rules:
        return replace(self.rules, hooks=HooksLeft(hooks, self.inside.get(call.id)))

    def rules_of_all(self, hooks: HookSet) -> Rules:
        return replace(self.rules, hooks=hooks)


_EDITS: Final = "mcp-toolset/edits"
_OWN: Final = frozenset({"elicit", "ask", "edits", "keep", "round", "_inner", "_answers", "_has_run"})


class AnsweringContext(ToolContext):
    """The context of a call of a round for middleware and hooks: their questions become the round's."""

    __slots__ = ("_answers", "_has_run", "_inner", "round")

    def __init__(
        self, inner: ToolContext, answers: Answers, has_run: Callable[[], bool], round: str = ""
    ) -> None:
        self._inner, self._answers, self._has_run, self.round = inner, answers, has_run, round

    @property
    def edits(self) -> Mapping[str, Any]:
        known = self._answers.get(_EDITS)
        return {} if known is None else known.content

    def keep(self, edits: Mapping[str, Any]) -> None:
        if edits:
            self._answers[_EDITS] = ElicitationAnswer("accept", edits)

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        found = self._answers.get(key or question)
        if found is not None:
            return found
        if self._inner.can_ask:
            return await self._inner.elicit(question, schema, key=key)
        if self._has_run():
            raise errors.CannotAskError(
                "the tool has run already, and would run again with the answer; ask before it runs"
            )
        raise InputRequired({key or question: elicitation(question, schema)})

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_inner"), name)


RUN_TIMEOUT: Final = 30.0  # The default seconds that a tool may run.
RUN_CONCURRENCY: Final = 16  # The default number of tools of a round that run at the same time.

_NOT_YET: Final = ToolResult({"content": [], "resultType": "inputRequired"})
"""The result inside the dispatch of a call that the application or the user must answer."""

_log = logging.getLogger("mcp_toolset.calls")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run of calls; see `ToolRoundPlan.run_pending`."""

    context: ToolContext
    timeout: float = RUN_TIMEOUT
    concurrency: int = RUN_CONCURRENCY
    on_tool_error: OnToolError = "continue"

    def __post_init__(self) -> None:
        require_context(self.context)
        if not (self.timeout > 0 and self.concurrency > 0):
            found = f"{self.timeout:g} s and {self.concurrency}"
            raise errors.RoundError(f"a run needs a positive timeout and concurrency, not {found}")
        if self.on_tool_error not in ("continue", "halt") and not callable(self.on_tool_error):
            raise errors.RoundError(
                f"on_tool_error is 'continue', 'halt' or a function, not {self.on_tool_error!r}"
            )


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call's run."""

    call: ToolCall
    result: ToolResult  # Its result; meaningless while it waits or asks.
    ask: AskUser | None = None  # The tool's question to the user.
    halt: str | None = None  # Why the loop should end.
    waits: bool = False  # True if the tool turned out to be manual.
    failure: ToolFailure | None = None
    key: str = ""  # The key of the answer to a question of middleware; empty if the answer is the result.


@dataclass(slots=True)
class _Interruptions:
    """Questions and halts of a tool besides its result."""

    ask: AskUser | None = None
    halt: str | None = None
    waits: bool = False
    has_run: bool = False
    exception: BaseException | None = None


@dataclasses.dataclass(slots=True)
class CallRunner:
    """Runs calls of a view whose hooks have run; any failure of a call becomes its result."""

    view: ToolView
    # Result hooks see every result. Execution hooks run for the call that a calling tool stands for, as they
    # could not run before.
    hooks: HookSet
    options: RunOptions
    calls: InitVar[Sequence[ToolCall]]
    # The middleware, and the execution hooks that run inside of it.
    around: Around = field(default_factory=Around)
    # The user's answers to questions of middleware, by call.
    answers: dict[str, Answers] = field(default_factory=dict[str, Answers])
    round: str = ""  # The id of the round.
    _told: dict[str, _Interruptions] = field(default_factory=dict[str, _Interruptions], init=False)
    _plain: ToolDispatch = field(init=False)
    _guarded: dict[str, ToolDispatch] = field(init=False)
    _redirected: ToolDispatch = field(init=False)

    def __post_init__(self, calls: Sequence[ToolCall]) -> None:
        called = {call.name: self.view[call.name] for call in calls}
        # Its calls were prepared when the round was made.
        listened = {name: replace(self._listened(one), prepare=None) for name, one in called.items()}
        names, around = self.view.names, self.around
        plain = Rules(hooks=HooksLeft(self.hooks), observers=around.rules.observers)
        self._plain = ToolDispatch(listened.values(), rules=plain, names=names)
        self._guarded = {
            call.id: ToolDispatch([listened[call.name]], rules=around.rules_of(call, self.hooks), names=names)
            for call in calls
            if around.guards(call, self.view)
        }
        self._redirected = self._plain
        if any(binding.redirect is not None for binding in called.values()):
            everything = [self._listened(binding) for binding in self.view.values()]
            self._redirected = ToolDispatch(everything, rules=around.rules_of_all(self.hooks), names=names)

    async def run(self, call: ToolCall) -> CallOutcome:
        told = self._told[call.id] = _Interruptions()
        try:
            result = await self._result(call, told)
        except InputRequired as required:
            return _asking(call, required)
        if told.waits or told.ask is not None:
            return CallOutcome(call, result, told.ask, waits=told.waits)
        if not result.is_complete:
            result = ToolResult.of_error(
                f"{call.name} asks for input, and this round cannot ask for it; the call did not finish"
            )
        if not result.is_error or rejection_reason(result) is not None:
            return CallOutcome(call, result, halt=told.halt)
        failure = ToolFailure(call, result, told.exception)
        verdict = await self._verdict(failure)
        halt = told.halt or ("error" if verdict == "halt" else None)
        return CallOutcome(call, result, halt=halt, failure=failure)

    async def _result(self, call: ToolCall, told: _Interruptions) -> ToolResult:
        plain = self._plain if self.view[call.name].redirect is None else self._redirected
        answers = self.answers.setdefault(call.id, {})
        context = AnsweringContext(self.options.context, answers, lambda: told.has_run, self.round)
        try:
            return await self._guarded.get(call.id, plain).call(copied_call(call), context)
        except (errors.UnknownToolError, errors.UpstreamProtocolError) as fault:
            told.exception = fault
            return ToolResult.of_error(str(fault))

    def _listened(self, binding: ToolBinding) -> ToolBinding:

        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            told = self._told[call.id]
            if binding.manual:
                told.waits = True
                return _NOT_YET
            told.has_run = True
            try:
                # A question of middleware is the round's; a tool keeps the context that it was given.
                result = await self._in_time(binding, call, self.options.context)
            # The exception is raised again and becomes the call's error result; `on_tool_error` needs it as
            # well.
            except (Exception, SystemExit, CancelledError) as fault:
                told.exception = fault
                raise
            if result.halt is not None:
                told.halt = result.halt.reason
            told.ask = result.ask
            return result if result.ask is None else _NOT_YET

        return replace(binding, execute=execute, timeout=None)

    async def _in_time(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        seconds = self.options.timeout if binding.timeout is None else binding.timeout
        if not binding.source and binding.redirect is None:
            context = context.for_handler(call, binding.capabilities or frozenset())
        with anyio.move_on_after(seconds):
            return await binding.execute(call, context)
        told = f"{call.name} gave no answer within {seconds:g} s and was stopped"
        self._told[call.id].exception = TimeoutError(told)
        return replace(ToolResult.of_error(told), stopped=True)

    async def _verdict(self, failure: ToolFailure) -> Verdict:
        decide = self.options.on_tool_error
        if not callable(decide):
            return decide
        try:
            with anyio.fail_after(RUN_TIMEOUT):
                answer = decide(failure)
                verdict = cast("object", await answer if inspect.isawaitable(answer) else answer)
        # The function is the application's code and may raise anything; its siblings are to finish.
        except (Exception, SystemExit):
            _log.exception("on_tool_error failed about %s; the loop halts", in_log(failure.call.name))
            return "halt"
        if verdict in ("continue", "halt"):
            return verdict
        _log.error("on_tool_error returned %r about %s; the loop halts", verdict, in_log(failure.call.name))
        return "halt"


def _asking(call: ToolCall, required: InputRequired) -> CallOutcome:
    """The first question of a middleware; the others are asked when the call runs again."""
    key, params = next(iter(required.requests.items()))
    return CallOutcome(call, _NOT_YET, AskUser(params["message"], params["requestedSchema"]), key=key)


@asynccontextmanager
async def running(
    runner: CallRunner,
    calls: Sequence[ToolCall],
    under_way: set[str],
    took: Callable[[CallOutcome], CallResult | None],
) -> AsyncGenerator[AsyncIterator[CallResult]]:
    """Run calls concurrently during the block, and yield each result as it comes.

    Leaving the block cancels the calls that still run; an error of the block is raised itself. `under_way`
    receives the id of each running call; `took` records an outcome, and returns its result if it has one.
    """
    raised: BaseException | None = None
    send, receive = anyio.create_memory_object_stream[CallResult](len(calls))

    async def run(call: ToolCall, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            under_way.add(call.id)
            try:
                done = took(await runner.run(call))
            finally:
                under_way.discard(call.id)
        if done is not None:
            send.send_nowait(done)

    async def run_all() -> None:
        limiter = anyio.CapacityLimiter(runner.options.concurrency)
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run, call, limiter)
        send.close()

    # The stream outlives the tasks, so that outcomes of cancelled tasks are recorded as well.
    with send, receive:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_all)
                try:
                    yield receive
                except BaseException as fault:
                    raised = fault
                    raise
                finally:
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if raised is not None and errors.sole(group) is raised:
                raise raised from None
            raise


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
            raise errors.RoundError(
                f"this round is already {self.state}; make one of the next assistant message"
            )
        if self.holder is not holder:
            raise errors.RoundError("a newer plan has replaced this one; go on with what apply returned")

    def require_rest(self, holder: object) -> None:
        self.require(holder)
        if self.activity is not None:
            raise errors.RoundError(f"this round is {self.activity} just now; wait until that has ended")

    def require_open_to_results(self, holder: object) -> None:
        self.require(holder)
        if self.activity == "asking hooks":
            raise errors.RoundError("this round is asking hooks just now; wait until that has ended")

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
"""The party that must act next.

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
        """The party that must act next."""
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
