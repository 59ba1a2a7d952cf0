"""Run hooks on one call outside of dispatch: for a round, and for `DecodedCall.hook`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mcp_toolset.calls.decision import Complete, Reject, rejection
from mcp_toolset.calls.hooks import BoundHook, BoundResultHook
from mcp_toolset.calls.observers import note_decision, note_fault
from mcp_toolset.errors import CallError, InvalidArgumentsError, StoreError
from mcp_toolset.tools.binding import ToolBinding, loaded
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import copied as copied_arguments
from mcp_toolset.tools.input import HookAnswer
from mcp_toolset.tools.result import ToolResult


async def about_one(
    call: ToolCall,
    binding: ToolBinding,
    asked: Iterable[BoundHook],
    seeing: Iterable[BoundResultHook],
    context: ToolContext,
) -> HookAnswer:
    found = await decided(call, binding, asked, context)
    if isinstance(found, ToolCall):
        return HookAnswer(found)
    left, decision = found
    if isinstance(decision, Complete):
        return HookAnswer(left, decision.output, is_answered=True)
    refused = await seen(left, rejection(decision), seeing, context)
    return HookAnswer(left, rejection=refused, reason=decision.reason)


async def decided(
    call: ToolCall, binding: ToolBinding, hooks: Iterable[BoundHook], context: ToolContext
) -> ToolCall | tuple[ToolCall, Reject | Complete]:
    if refusal := await _gate_refusal(call, binding, context):
        return call, refusal
    for hook in hooks:
        decision = await hook.decide(copied(call), context)
        note_decision(decision)
        if isinstance(decision, Reject | Complete):
            return call, decision
        call = call.with_arguments(copied_arguments(decision.input))
        if misfit := binding.misfit(call):
            told = misfit.removeprefix(f"Invalid arguments for {call.name}: ")
            note_fault(InvalidArgumentsError(misfit))
            fault = f"a hook edited the arguments of {call.name} and they do not fit any more: {told}"
            return call, Reject(fault)
    return call


async def seen(
    call: ToolCall, result: ToolResult, hooks: Iterable[BoundResultHook], context: ToolContext
) -> ToolResult:
    for hook in hooks:
        result = await hook.passed(copied(call), result, context)
    return result


def copied(call: ToolCall) -> ToolCall:
    arguments = copied_arguments(call.arguments)
    return ToolCall(call.name, arguments, call.id, call.original, call.grant, call.repairs)


async def _gate_refusal(call: ToolCall, binding: ToolBinding, context: ToolContext) -> Reject | None:
    """Ask the gate first, as in a served call: a hook's answer must not bypass it."""
    if binding.gate is None:
        return None
    try:
        await loaded(partial(binding.gate, copied(call), context))
    except (CallError, StoreError) as fault:
        note_fault(fault)
        return Reject(str(fault), "policy")
    return None
