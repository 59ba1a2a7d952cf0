"""What hooks make of a call of a round, before its tool may run."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_toolset.calls.pipeline.decision import Complete, Reject
from mcp_toolset.calls.pipeline.hook_adapters import BoundHook, BoundResultHook
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.output_check import completed
from mcp_toolset.calls.pipeline.rejection import rejection
from mcp_toolset.calls.rounds.call_result import HandledCall, RejectedCall
from mcp_toolset.errors import CallError, InvalidOutputError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.plain import copied as copied_arguments
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.typed_call import HookAnswer
from mcp_toolset.tools.view.view import ToolBinding, ToolView

Answer = ToolCall | HandledCall | RejectedCall
"""What hooks make of a call; a call is still to run, with its last input."""


async def ask_hooks(
    call: ToolCall, view: ToolView, hooks: HookSet, seeing: HookSet, context: ToolContext
) -> Answer:
    """Ask the hooks of a tool about a call, in order, after its gate.

    A hook is given a copy of the arguments, and what it hands on is checked again even if it edited
    that copy in place. What hooks answer or refuse is shown to the result hooks in `seeing`. A call that
    only stands for another is left for when it runs.
    """
    binding = view[call.name]
    if binding.redirect is not None:
        return call
    found = await _decided(call, binding, hooks.execution_hooks(binding, view.names), context)
    if isinstance(found, ToolCall):
        return found
    call, decision = found
    decided = _completed(binding, decision) if isinstance(decision, Complete) else decision
    shown_to = seeing.result_hooks(binding, view.names)
    if isinstance(decided, Reject):
        return RejectedCall(call, decided, await _seen(call, rejection(decided), shown_to, context))
    return HandledCall(call, await _seen(call, decided, shown_to, context))


async def about_one(call: ToolCall, binding: ToolBinding, hooks: HookSet, context: ToolContext) -> HookAnswer:
    """What hooks make of one call by itself; what they refuse is shown to their result hooks."""
    found = await _decided(call, binding, hooks.execution_hooks(binding), context)
    if isinstance(found, ToolCall):
        return HookAnswer(found)
    left, decision = found
    if isinstance(decision, Complete):
        return HookAnswer(left, decision.output, is_answered=True)
    refused = await _seen(left, rejection(decision), hooks.result_hooks(binding), context)
    return HookAnswer(left, rejection=refused, reason=decision.reason)


async def _decided(
    call: ToolCall, binding: ToolBinding, hooks: Iterable[BoundHook], context: ToolContext
) -> ToolCall | tuple[ToolCall, Reject | Complete]:
    if refusal := _gate_refusal(call, binding, context):
        return call, refusal
    for hook in hooks:
        decision = await hook.decide(copied(call), context)
        if isinstance(decision, Reject | Complete):
            return call, decision
        call = call.with_arguments(copied_arguments(decision.input))
        if misfit := binding.misfit(call):
            told = misfit.removeprefix(f"Invalid arguments for {call.name}: ")
            fault = f"a hook edited the arguments of {call.name} and they do not fit any more: {told}"
            return call, Reject(fault)
    return call


def _gate_refusal(call: ToolCall, binding: ToolBinding, context: ToolContext) -> Reject | None:
    """A hook's answer must not go around the gate, so it is asked first, as in a served call."""
    try:
        if binding.gate is not None:
            binding.gate(copied(call), context)
    except CallError as fault:
        return Reject(str(fault), "policy")
    return None


def _completed(binding: ToolBinding, decision: Complete) -> Reject | ToolResult:
    try:
        return completed(binding, decision)
    except InvalidOutputError as fault:
        return Reject(str(fault))


async def _seen(
    call: ToolCall, result: ToolResult, hooks: Iterable[BoundResultHook], context: ToolContext
) -> ToolResult:
    for hook in hooks:
        result = await hook.passed(copied(call), result, context)
    return result


def copied(call: ToolCall) -> ToolCall:
    """The call with arguments of its own, for code that may edit them."""
    return ToolCall(call.name, copied_arguments(call.arguments), call.id, call.original, call.grant)


def asks_anything(hooks: HookSet, view: ToolView) -> bool:
    """Whether any hook is there for any tool of the view."""
    names = view.names
    return any(hooks.execution_hooks(one, names) or hooks.result_hooks(one, names) for one in view.values())


class HooksLeft(HookSet):
    """The hooks that a run of calls has still to ask: result hooks, and execution hooks in the middleware."""

    def __init__(self, hooks: HookSet, inside: HookSet | None = None) -> None:
        """Take the result hooks of `hooks`, and the execution hooks of `inside`."""
        super().__init__(deadline=hooks.deadline)
        self._results.extend(hooks._results)
        if inside is not None:
            self._execution.extend(inside._execution)
