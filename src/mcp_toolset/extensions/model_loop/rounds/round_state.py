"""Restore a stored round; no tool runs that has changed since the model saw it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from pydantic import ValidationError

from mcp_toolset._records import replace
from mcp_toolset.calls.decision import Reject
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule, Rules
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    CallResult,
    HandledCall,
    InvalidCall,
    RejectedCall,
    RoundCommit,
    changed,
    interrupted,
    not_callable,
)
from mcp_toolset.extensions.model_loop.rounds.round_plan import ToolRoundPlan
from mcp_toolset.extensions.model_loop.rounds.round_record import (
    FORMAT,
    VERSION,
    CallRecord,
    HandledRecord,
    IssueRecord,
    PendingRecord,
    RejectedRecord,
    RoundRecord,
    tool_record,
)
from mcp_toolset.extensions.model_loop.rounds.round_status import RoundProgress
from mcp_toolset.extensions.model_loop.rounds.runner import Around
from mcp_toolset.extensions.model_loop.turns import AssistantCall, AssistantTurn
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, ToolResult
from mcp_toolset.tools.view import ToolBinding, ToolView


def restored(
    state: Mapping[str, Any],
    view: ToolView,
    known: Container[str],
    hooks: AnyRule | None,
    rules: AnyRule | None = None,
) -> ToolRoundPlan:
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
    unseen = record.has_no_hooks and not rules.hooks.is_empty
    guarded = [id for id, one in pending if isinstance(one, PendingRecord) and (one.guarded or unseen)]
    without = replace(rules, hooks=HookSet())
    return Around(without, dict.fromkeys(guarded, rules.hooks), not record.has_no_hooks)


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


def _progress(record: RoundRecord, issues: set[str]) -> RoundProgress:
    progress = RoundProgress(record.id)
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


def _commit(record: RoundRecord, plan: ToolRoundPlan) -> RoundCommit:
    results: list[CallResult] = []
    for call in record.calls:
        ask = plan.progress.questions.get(call.id) if call.unanswered else None
        result = ToolResult(call.committed or {}, ask=ask)
        results.append(CallResult(call.id, call.name, call.arguments, result))
    unanswered = {call.id for call in record.calls if call.unanswered}
    questions = tuple(asked for asked in plan.questions if asked.id in unanswered)
    return RoundCommit(plan.turn, tuple(results), questions, plan.halt)
