"""A round as plain JSON data: stored after any step, and gone on with in another process.

The data is versioned and read strictly. It has the digest of every definition that a call still
depends on, so that nothing runs that is no longer what the model was shown.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from mcp_toolset.calls.pipeline.decision import Reject, RejectionSource
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.rules import Rules
from mcp_toolset.calls.providers.turn import AssistantCall, AssistantTurn, Origin
from mcp_toolset.calls.rounds.call_result import CallResult, HandledCall, RejectedCall, is_placeholder
from mcp_toolset.calls.rounds.invalid_call import (
    InvalidCall,
    InvalidCallReason,
    changed,
    interrupted,
    not_callable,
)
from mcp_toolset.calls.rounds.round_commit import RoundCommit
from mcp_toolset.calls.rounds.round_hooks import asks_anything
from mcp_toolset.calls.rounds.round_plan import ToolRoundPlan
from mcp_toolset.calls.rounds.round_progress import RoundProgress, RoundState
from mcp_toolset.calls.rounds.round_rules import Around
from mcp_toolset.calls.rounds.round_status import RoundStatus
from mcp_toolset.errors import RoundError
from mcp_toolset.tools.core.asking import ElicitationAnswer
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.core.outcome import AskUser
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding, ToolView

FORMAT: Final = "mcp-toolset/round"
VERSION: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolRecord(_Record):
    """Which tool a pending call is meant for."""

    source: str
    digest: str


class PendingRecord(_Record):
    """A call that is still to run, or has run without a commit."""

    kind: Literal["pending"] = "pending"
    effective: dict[str, Any]
    tool: ToolRecord | None
    """`None` where it has gone since, after the call had its result."""
    running: bool = False
    waits: bool = False
    guarded: bool = False
    """Whether its hooks are asked when it is run, inside of middleware."""


class HandledRecord(_Record):
    """A call that a hook has answered."""

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
    """A call that cannot be run."""

    kind: Literal["issue"] = "issue"
    reason: InvalidCallReason
    message: str


Standing = Annotated[
    PendingRecord | HandledRecord | RejectedRecord | IssueRecord, Field(discriminator="kind")
]


class QuestionRecord(_Record):
    """What a tool asks the user."""

    question: str
    key: str = ""
    """What the answer to a question of middleware is found by when the call is run again."""
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class AnswerRecord(_Record):
    """What the user has answered to a question of middleware."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any]


class CallRecord(_Record):
    """One call of the turn: as it came, where it stands, and what it has come to."""

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
    status: RoundStatus
    state: RoundState
    origin: Origin
    message: dict[str, Any]
    needs_hooks: bool
    needs_rules: bool = False
    calls: list[CallRecord]


def stored(plan: ToolRoundPlan) -> dict[str, Any]:
    """A round as plain JSON data.

    Raises:
        RoundError: a result of the application's own has no JSON form.
    """
    committed = plan.progress.committed
    record = RoundRecord(
        status=plan.status,
        state=plan.state,
        origin=plan.turn.origin,
        message=dict(plan.turn.message),
        needs_hooks=_needs_hooks(plan),
        needs_rules=plan.state == "open" and any(map(plan.is_guarded, plan.unfinished())),
        calls=[_call_record(plan, place, call, committed) for place, call in enumerate(plan.turn.calls)],
    )
    try:
        return record.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError as fault:
        raise RoundError(
            f"the round cannot be stored, as something in it has no JSON form: {fault}"
        ) from None


def _needs_hooks(plan: ToolRoundPlan) -> bool:
    """Whether hooks have still to see something: a result, or a call behind a calling tool."""
    if plan.state != "open":
        return False
    to_run = plan.to_run()
    seen = (plan.hooks.result_hooks(plan.view.get(call.name, call.name), plan.view.names) for call in to_run)
    if any(seen):
        return True
    stands_for_others = any(plan.view[call.name].redirect is not None for call in to_run)
    return stands_for_others and asks_anything(plan.hooks, plan.view)


def _call_record(
    plan: ToolRoundPlan, place: int, call: AssistantCall, committed: RoundCommit | None
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


def _standing(plan: ToolRoundPlan, id: str) -> Standing:
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
                effective=done.call.arguments,
                outcome=outcome,
                reason=decision.reason,
                source=decision.source,
            )
    issue = next(issue for issue in plan.issues if issue.call.id == id)
    return IssueRecord(reason=issue.reason, message=issue.message)


def _pending_record(plan: ToolRoundPlan, call: ToolCall) -> PendingRecord:
    return PendingRecord(
        effective=call.arguments,
        tool=_tool_record(plan.view.get(call.name)),
        running=call.id in plan.progress.running,
        waits=call.id in plan.progress.waiting,
        guarded=call.id in plan.around.inside,
    )


def _tool_record(binding: ToolBinding | None) -> ToolRecord | None:
    return binding and ToolRecord(source=binding.source, digest=binding.definition.digest)


def restored(
    state: Mapping[str, Any],
    view: ToolView,
    known: Container[str],
    hooks: HookSet | None,
    rules: Rules | None = None,
) -> ToolRoundPlan:
    """The plan to go on with; see `ToolRound.from_state`.

    Raises:
        RoundError: it is no state of a round, or one of another version, or the hooks are missing.
    """
    record = _read(state)
    if record.needs_rules and rules is None:
        raise RoundError(
            "middleware of this round has still to see calls; give the rules: from_state(…, rules=…)"
        )
    if record.needs_hooks and hooks is None and rules is None:
        raise RoundError(
            "hooks of this round have still to see calls or results; give them: from_state(…, hooks=…)"
        )
    calls = tuple(AssistantCall(call.id, call.name, call.arguments) for call in record.calls)
    turn = AssistantTurn(record.message, calls, record.origin)
    found = [_found(call, made, view, known) for call, made in zip(record.calls, calls, strict=True)]
    every = Rules().merged(*(one for one in (hooks, rules) if one is not None))
    progress = _progress(record, {each.call.id for each in found if isinstance(each, InvalidCall)})
    plan = ToolRoundPlan(
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


def _around(record: RoundRecord, rules: Rules) -> Around:
    pending = ((call.id, call.standing) for call in record.calls)
    guarded = [id for id, one in pending if isinstance(one, PendingRecord) and one.guarded]
    return Around(replace(rules, hooks=HookSet()), dict.fromkeys(guarded, rules.hooks))


def _read(state: Mapping[str, Any]) -> RoundRecord:
    if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RoundError(f"this is no state of a round, which is an object, but {state!r}")
    if (found := state.get("format")) != FORMAT:
        raise RoundError(f"this is no state of a round: its format is {found!r}, not {FORMAT!r}")
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
    if record.result is not None or record.question is not None or record.committed is not None:
        return call
    return _moved(standing, made, view, known) or call


def _moved(
    standing: PendingRecord, made: AssistantCall, view: ToolView, known: Container[str]
) -> InvalidCall | None:
    """Why a call that had still to run when it was stored cannot run now."""
    binding: ToolBinding | None = view.get(made.name)
    if binding is None:
        return not_callable(made, known=made.name in known)
    if _tool_record(binding) != standing.tool:
        return changed(made)
    if standing.running and not _is_repeatable(binding):
        return interrupted(made)
    return None


def _is_repeatable(binding: ToolBinding) -> bool:
    hints = binding.definition.annotations or dict[str, Any]()
    return binding.definition.read_only or hints.get("idempotentHint") is True


def _progress(record: RoundRecord, issues: set[str]) -> RoundProgress:
    progress = RoundProgress()
    progress.state = record.state
    for call in record.calls:
        if call.result is not None:
            progress.results[call.id] = ToolResult(call.result)
        if call.given:
            progress.given.add(call.id)
        if call.question is not None:
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


def _commit(record: RoundRecord, plan: ToolRoundPlan) -> RoundCommit:
    results: list[CallResult] = []
    for call in record.calls:
        ask = plan.progress.questions.get(call.id) if call.unanswered else None
        result = ToolResult(call.committed or {}, ask=ask)
        results.append(CallResult(call.id, call.name, call.arguments, result))
    unanswered = {call.id for call in record.calls if call.unanswered}
    questions = tuple(asked for asked in plan.questions if asked.id in unanswered)
    return RoundCommit(plan.turn, tuple(results), questions, plan.halt)
