"""`stored` and `restored`: a round as plain data, for a loop that goes on in another process."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from mcp_toolset._records import replace
from mcp_toolset.calls.decision import Reject, RejectionSource
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule, Rules
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop import runner
from mcp_toolset.extensions.model_loop.calls import (
    AssistantCall,
    AssistantTurn,
    CallResult,
    HandledCall,
    InvalidCall,
    InvalidCallReason,
    Origin,
    RejectedCall,
    RoundCommit,
    changed,
    interrupted,
    is_placeholder,
    not_callable,
)
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, ToolResult
from mcp_toolset.tools.view import ToolBinding, ToolView

FORMAT: Final = "mcp-toolset/round"


VERSION: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolRecord(_Record):
    """The tool that a pending call is meant for."""

    source: str
    digest: str


class PendingRecord(_Record):
    """A call that must still run, or has run without a commit."""

    kind: Literal["pending"] = "pending"
    effective: dict[str, Any]
    tool: ToolRecord | None
    """`None` if the tool was removed after the call had its result."""
    running: bool = False
    waits: bool = False
    guarded: bool = False
    """True if its hooks run inside of middleware, when it runs."""


class HandledRecord(_Record):
    """A call that a hook answered."""

    kind: Literal["handled"] = "handled"
    effective: dict[str, Any]
    outcome: dict[str, Any]


class RejectedRecord(_Record):
    """A call that was refused."""

    kind: Literal["rejected"] = "rejected"
    effective: dict[str, Any]
    outcome: dict[str, Any]
    reason: str
    source: RejectionSource


class IssueRecord(_Record):
    """A call that cannot run."""

    kind: Literal["issue"] = "issue"
    reason: InvalidCallReason
    message: str


Standing = Annotated[
    PendingRecord | HandledRecord | RejectedRecord | IssueRecord, Field(discriminator="kind")
]


class QuestionRecord(_Record):
    """A tool's question to the user."""

    question: str
    key: str = ""
    """The key of the answer to a question of middleware when the call runs again."""
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class AnswerRecord(_Record):
    """The user's answer to a question of middleware."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any]


class CallRecord(_Record):
    """One call of the turn: its arguments, its state and its result so far."""

    id: str
    name: str
    arguments: dict[str, Any] | str
    standing: Standing
    result: dict[str, Any] | None = None
    given: bool = False
    question: QuestionRecord | None = None
    answers: dict[str, AnswerRecord] = Field(default_factory=dict[str, AnswerRecord])
    halt: str | None = None
    committed: dict[str, Any] | None = None
    unanswered: bool = False


class RoundRecord(_Record):
    """A round."""

    format: Literal["mcp-toolset/round"] = FORMAT
    version: Literal[1] = VERSION
    id: str = ""
    status: runner.RoundStatus
    state: runner.RoundState
    origin: Origin
    message: dict[str, Any]
    needs_hooks: bool
    needs_rules: bool = False
    has_no_hooks: bool = False
    """True if no hook was applied, so that those of `from_state` have seen no call yet."""
    calls: list[CallRecord]


def stored(plan: runner.RoundStanding) -> dict[str, Any]:
    committed = plan.progress.committed
    record = RoundRecord(
        id=plan.progress.id,
        status=plan.status,
        state=plan.state,
        origin=plan.turn.origin,
        message=dict(plan.turn.message),
        needs_hooks=_needs_hooks(plan),
        needs_rules=plan.state == "open" and any(map(plan.is_guarded, plan.unfinished())),
        has_no_hooks=plan.hooks.is_empty and not plan.around.inside and not plan.around.had_hooks,
        calls=[_call_record(plan, place, call, committed) for place, call in enumerate(plan.turn.calls)],
    )
    try:
        return record.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError as fault:
        raise RoundError(
            f"the round cannot be stored, as something in it has no JSON form: {fault}"
        ) from None


def _needs_hooks(plan: runner.RoundStanding) -> bool:
    """True if a hook must still see something: a result, or the call behind a calling tool."""
    if plan.state != "open":
        return False
    to_run = plan.to_run()
    seen = (plan.hooks.result_hooks(plan.view.get(call.name, call.name), plan.view.names) for call in to_run)
    if any(seen):
        return True
    stands_for_others = any(plan.view[call.name].redirect is not None for call in to_run)
    return stands_for_others and runner.asks_anything(plan.hooks, plan.view)


def _call_record(
    plan: runner.RoundStanding, place: int, call: AssistantCall, committed: RoundCommit | None
) -> CallRecord:
    progress = plan.progress
    ask, result = progress.questions.get(call.id), progress.results.get(call.id)
    final = None if committed is None else committed.results[place]
    return CallRecord(
        id=call.id,
        name=call.name,
        arguments=call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
        standing=_standing(plan, call.id),
        result=None if result is None else dict(result.wire),
        given=call.id in progress.given,
        question=None if ask is None else _question_record(ask, progress.keys.get(call.id, "")),
        answers={
            key: AnswerRecord(action=one.action, content=dict(one.content))
            for key, one in progress.answers.get(call.id, {}).items()
        },
        halt=progress.halts.get(call.id),
        committed=None if final is None else dict(final.result.wire),
        unanswered=final is not None and is_placeholder(final),
    )


def _question_record(ask: AskUser, key: str) -> QuestionRecord:
    schema = None if ask.schema is None else dict(ask.schema)
    return QuestionRecord(question=ask.question, key=key, schema=schema)


def _standing(plan: runner.RoundStanding, id: str) -> Standing:
    for call in plan.pending:
        if call.id == id:
            return _pending_record(plan, call)
    for done in plan.handled:
        if done.call.id == id:
            return HandledRecord(effective=done.call.arguments, outcome=dict(done.result.wire))
    for done in plan.rejected:
        if done.call.id == id:
            outcome, decision = dict(done.result.wire), done.decision
            return RejectedRecord(
                effective=done.call.arguments, outcome=outcome, reason=decision.reason, source=decision.source
            )
    issue = next(issue for issue in plan.issues if issue.call.id == id)
    return IssueRecord(reason=issue.reason, message=issue.message)


def _pending_record(plan: runner.RoundStanding, call: ToolCall) -> PendingRecord:
    return PendingRecord(
        effective=call.arguments,
        tool=tool_record(plan.view.get(call.name)),
        running=call.id in plan.progress.running,
        waits=call.id in plan.progress.waiting,
        guarded=call.id in plan.around.inside,
    )


def tool_record(binding: ToolBinding | None) -> ToolRecord | None:
    return binding and ToolRecord(source=binding.source, digest=binding.definition.digest)


_Plan = TypeVar("_Plan", bound=runner.RoundStanding)


def restored(
    kind: type[_Plan],
    state: Mapping[str, Any],
    view: ToolView,
    known: Container[str],
    hooks: AnyRule | None,
    rules: AnyRule | None = None,
) -> _Plan:
    """The plan of a stored round; no tool runs that has changed since the model saw it."""
    record = _read(state)
    if record.needs_rules and rules is None:
        raise RoundError(
            "this round has calls that its middleware has not seen; give the rules: from_state(…, rules=…)"
        )
    if record.needs_hooks and hooks is None and rules is None:
        raise RoundError(
            "this round has calls or results that its hooks have not seen; give the hooks: "
            "from_state(…, hooks=…)"
        )
    calls = tuple(AssistantCall(call.id, call.name, call.arguments) for call in record.calls)
    turn = AssistantTurn(record.message, calls, record.origin)
    found = [_found(call, made, view, known) for call, made in zip(record.calls, calls, strict=True)]
    every = Rules().merged(*(one for one in (hooks, rules) if one is not None))
    progress = _progress(record, {each.call.id for each in found if isinstance(each, InvalidCall)})
    plan = kind(
        pending=tuple(each for each in found if isinstance(each, ToolCall)),
        handled=tuple(each for each in found if isinstance(each, HandledCall)),
        rejected=tuple(each for each in found if isinstance(each, RejectedCall)),
        issues=tuple(each for each in found if isinstance(each, InvalidCall)),
        turn=turn,
        view=view,
        hooks=every.hooks,
        progress=progress,
        around=_around(record, every),
    )
    if record.state == "committed":
        progress.committed = _commit(record, plan)
    return plan


def _around(record: RoundRecord, rules: Rules) -> runner.Around:
    pending = ((call.id, call.standing) for call in record.calls)
    unseen = record.has_no_hooks and not rules.hooks.is_empty
    guarded = [id for id, one in pending if isinstance(one, PendingRecord) and (one.guarded or unseen)]
    without = replace(rules, hooks=HookSet())
    return runner.Around(without, dict.fromkeys(guarded, rules.hooks), not record.has_no_hooks)


def _read(state: Mapping[str, Any]) -> RoundRecord:
    if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RoundError(f"the state of a round is an object, not {state!r}")
    if (found := state.get("format")) != FORMAT:
        raise RoundError(f"this is not the state of a round: its format is {found!r}, not {FORMAT!r}")
    if (version := state.get("version")) != VERSION:
        raise RoundError(f"this state has version {version!r}, and this release reads version {VERSION}")
    try:
        return RoundRecord.model_validate(state)
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise RoundError(f"this state of a round is damaged at {place}: {first['msg']}") from None


def _found(
    record: CallRecord, made: AssistantCall, view: ToolView, known: Container[str]
) -> ToolCall | HandledCall | RejectedCall | InvalidCall:
    standing = record.standing
    if isinstance(standing, IssueRecord):
        return InvalidCall(made, standing.reason, standing.message)
    original = made.arguments if isinstance(made.arguments, Mapping) else None
    call = ToolCall(record.name, standing.effective, record.id, original)
    if isinstance(standing, HandledRecord):
        return HandledCall(call, ToolResult(standing.outcome))
    if isinstance(standing, RejectedRecord):
        return RejectedCall(call, Reject(standing.reason, standing.source), ToolResult(standing.outcome))
    # A tool that has asked ran, and the answer is its result. What middleware has asked about did not run.
    has_run = record.question is not None and not record.question.key
    if record.result is not None or has_run or record.committed is not None:
        return call
    return _moved(standing, made, view, known) or call


def _moved(
    standing: PendingRecord, made: AssistantCall, view: ToolView, known: Container[str]
) -> InvalidCall | None:
    binding: ToolBinding | None = view.get(made.name)
    if binding is None:
        return not_callable(made, known=made.name in known or view.knows(made.name))
    if tool_record(binding) != standing.tool:
        return changed(made)
    if standing.running and not binding.definition.repeatable:
        return interrupted(made)
    return None


def _progress(record: RoundRecord, issues: set[str]) -> runner.RoundProgress:
    progress = runner.RoundProgress(record.id)
    progress.state = record.state
    for call in record.calls:
        if call.result is not None:
            progress.results[call.id] = ToolResult(call.result)
        if call.given:
            progress.given.add(call.id)
        if call.question is not None and call.id not in issues:
            progress.questions[call.id] = AskUser(call.question.question, call.question.schema_)
            if call.question.key:
                progress.keys[call.id] = call.question.key
        if call.answers:
            found = {key: ElicitationAnswer(one.action, one.content) for key, one in call.answers.items()}
            progress.answers[call.id] = found
        if call.halt is not None:
            progress.halts[call.id] = call.halt
        if isinstance(call.standing, PendingRecord) and call.standing.waits and call.id not in issues:
            progress.waiting.add(call.id)
    return progress


def _commit(record: RoundRecord, plan: runner.RoundStanding) -> RoundCommit:
    results: list[CallResult] = []
    for call in record.calls:
        ask = plan.progress.questions.get(call.id) if call.unanswered else None
        result = ToolResult(call.committed or {}, ask=ask)
        results.append(CallResult(call.id, call.name, call.arguments, result))
    unanswered = {call.id for call in record.calls if call.unanswered}
    questions = tuple(asked for asked in plan.questions if asked.id in unanswered)
    return RoundCommit(plan.turn, tuple(results), questions, plan.halt)
