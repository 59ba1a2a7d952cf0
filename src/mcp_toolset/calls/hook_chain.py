"""Run hooks on one call outside of dispatch: for a round, and for `DecodedCall.hook`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mcp_toolset.calls.bound_hooks import BoundHook, BoundResultHook
from mcp_toolset.calls.decision import Complete, Reject, rejection
from mcp_toolset.calls.dispatch import copied_call
from mcp_toolset.calls.observers import note_decision, note_fault
from mcp_toolset.errors import CallError, InvalidArgumentsError, StoreError
from mcp_toolset.tools.binding import ToolBinding, loaded
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import copied
from mcp_toolset.tools.input import HookAnswer
from mcp_toolset.tools.result import ToolResult


async def hook_answer(
    call: ToolCall,
    binding: ToolBinding,
    hooks: Iterable[BoundHook],
    result_hooks: Iterable[BoundResultHook],
    context: ToolContext,
) -> HookAnswer:
    outcome = await run_execution_hooks(call, binding, hooks, context)
    if isinstance(outcome, ToolCall):
        return HookAnswer(outcome)
    call, decision = outcome
    if isinstance(decision, Complete):
        return HookAnswer(call, decision.output, is_answered=True)
    refused = await run_result_hooks(call, rejection(decision), result_hooks, context)
    return HookAnswer(call, rejection=refused, reason=decision.reason)


async def run_execution_hooks(
    call: ToolCall, binding: ToolBinding, hooks: Iterable[BoundHook], context: ToolContext
) -> ToolCall | tuple[ToolCall, Reject | Complete]:
    """The call with the edits of its hooks, or with the first decision that ends it."""
    if refusal := await _gate_refusal(call, binding, context):
        return call, refusal
    for hook in hooks:
        decision = await hook.decide(copied_call(call), context)
        note_decision(decision)
        if isinstance(decision, Reject | Complete):
            return call, decision
        call = call.with_arguments(copied(decision.input))
        if misfit := binding.misfit(call):
            reason = misfit.removeprefix(f"Invalid arguments for {call.name}: ")
            note_fault(InvalidArgumentsError(misfit))
            fault = f"a hook edited the arguments of {call.name} and they do not fit any more: {reason}"
            return call, Reject(fault)
    return call


async def run_result_hooks(
    call: ToolCall, result: ToolResult, hooks: Iterable[BoundResultHook], context: ToolContext
) -> ToolResult:
    for hook in hooks:
        result = await hook.passed(copied_call(call), result, context)
    return result


async def _gate_refusal(call: ToolCall, binding: ToolBinding, context: ToolContext) -> Reject | None:
    """Ask the gate first, as in a served call: a hook's answer must not bypass it."""
    if binding.gate is None:
        return None
    try:
        await loaded(partial(binding.gate, copied_call(call), context))
    except (CallError, StoreError) as fault:
        note_fault(fault)
        return Reject(str(fault), "policy")
    return None
