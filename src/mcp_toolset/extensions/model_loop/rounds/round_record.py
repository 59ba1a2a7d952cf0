"""`RoundRecord`: a round as plain JSON data, with a version and digests; and a plan's conversion to it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from mcp_toolset.calls.decision import RejectionSource
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    InvalidCallReason,
    RoundCommit,
    is_placeholder,
)
from mcp_toolset.extensions.model_loop.rounds.round_status import RoundStanding, RoundState, RoundStatus
from mcp_toolset.extensions.model_loop.rounds.runner import asks_anything
from mcp_toolset.extensions.model_loop.turns import AssistantCall, Origin
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.result import AskUser
from mcp_toolset.tools.view import ToolBinding

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
    status: RoundStatus
    state: RoundState
    origin: Origin
    message: dict[str, Any]
    needs_hooks: bool
    needs_rules: bool = False
    has_no_hooks: bool = False
    """True if no hook was applied, so that those of `from_state` have seen no call yet."""
    calls: list[CallRecord]


def stored(plan: RoundStanding) -> dict[str, Any]:
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


def _needs_hooks(plan: RoundStanding) -> bool:
    """True if a hook must still see something: a result, or the call behind a calling tool."""
    if plan.state != "open":
        return False
    to_run = plan.to_run()
    seen = (plan.hooks.result_hooks(plan.view.get(call.name, call.name), plan.view.names) for call in to_run)
    if any(seen):
        return True
    stands_for_others = any(plan.view[call.name].redirect is not None for call in to_run)
    return stands_for_others and asks_anything(plan.hooks, plan.view)


def _call_record(
    plan: RoundStanding, place: int, call: AssistantCall, committed: RoundCommit | None
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


def _standing(plan: RoundStanding, id: str) -> Standing:
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


def _pending_record(plan: RoundStanding, call: ToolCall) -> PendingRecord:
    return PendingRecord(
        effective=call.arguments,
        tool=tool_record(plan.view.get(call.name)),
        running=call.id in plan.progress.running,
        waits=call.id in plan.progress.waiting,
        guarded=call.id in plan.around.inside,
    )


def tool_record(binding: ToolBinding | None) -> ToolRecord | None:
    return binding and ToolRecord(source=binding.source, digest=binding.definition.digest)
