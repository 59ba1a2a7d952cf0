"""Report the calls that a round does not run to observers: answered by hooks, or invalid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.observation import CallObserver, Observation, noting, report_of, tell
from mcp_toolset.calls.providers.turn import AssistantCall
from mcp_toolset.calls.rounds.invalid_call import InvalidCall
from mcp_toolset.calls.rounds.round_hooks import Answer, ask_hooks
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolView


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
    """Run hooks on a call; report it if they answered or refused it."""
    if not observers:
        return await ask_hooks(call, view, hooks, seeing, context)
    seen = Observation(binding=view[call.name])
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
    """Report the calls of a round that cannot run."""
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
    """Report a result that came from the application or the user."""
    if not observers:
        return
    seen = Observation(binding=view.get(call.name))
    report = report_of(seen, ToolCall(call.name, {}, call.id), LOCAL_CONTEXT, result)
    tell(observers, replace(report, round=round))
