"""What hooks make of a call of a round, before its tool may run (L17)."""

from __future__ import annotations

from mcp_toolset.calls.call_result import HandledCall, RejectedCall
from mcp_toolset.calls.decision import Complete, Reject
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.promised import completed
from mcp_toolset.calls.rejection import rejection
from mcp_toolset.errors import CallError, InvalidOutputError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.plain import copied as copied_arguments
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.typed_call import HookAnswer
from mcp_toolset.tools.view import ToolBinding, ToolView

Answer = ToolCall | HandledCall | RejectedCall
"""What hooks make of a call; a call is still to run, with its last input."""


async def ask_hooks(
    call: ToolCall, binding: ToolBinding, hooks: HookSet, seeing: HookSet, context: ToolContext
) -> Answer:
    """Ask the hooks of a tool about a call, in order, after its gate (L17).

    A hook is given a copy of the arguments, and what it hands on is checked again even if it edited
    that copy in place (F40). What hooks answer or refuse is shown to the result hooks in `seeing`
    (O9). A call that only stands for another is left for when it runs.
    """
    if binding.redirect is not None:
        return call
    found = await _decided(call, binding, hooks, context)
    if isinstance(found, ToolCall):
        return found
    call, decision = found
    decided = _completed(binding, decision) if isinstance(decision, Complete) else decision
    if isinstance(decided, Reject):
        return RejectedCall(call, decided, await _seen(call, binding, rejection(decided), seeing, context))
    return HandledCall(call, await _seen(call, binding, decided, seeing, context))


async def about_one(call: ToolCall, binding: ToolBinding, hooks: HookSet, context: ToolContext) -> HookAnswer:
    """What hooks make of one call by itself (L9); what they refuse is shown to their result hooks (O9)."""
    found = await _decided(call, binding, hooks, context)
    if isinstance(found, ToolCall):
        return HookAnswer(found)
    left, decision = found
    if isinstance(decision, Complete):
        return HookAnswer(left, decision.output, is_answered=True)
    refused = await _seen(left, binding, rejection(decision), hooks, context)
    return HookAnswer(left, rejection=refused, reason=decision.reason)


async def _decided(
    call: ToolCall, binding: ToolBinding, hooks: HookSet, context: ToolContext
) -> ToolCall | tuple[ToolCall, Reject | Complete]:
    if refusal := _gate_refusal(call, binding, context):
        return call, refusal
    for hook in hooks.execution_hooks(binding):
        decision = await hook.decide(copied(call), context)
        if isinstance(decision, Reject | Complete):
            return call, decision
        call = call.with_arguments(copied_arguments(decision.input))
        if not binding.arguments.is_valid(call.arguments):
            faults = "; ".join(binding.arguments.problems(call.arguments))
            fault = f"a hook edited the arguments of {call.name} and they do not fit any more: {faults}"
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
    call: ToolCall, binding: ToolBinding, result: ToolResult, hooks: HookSet, context: ToolContext
) -> ToolResult:
    for hook in hooks.result_hooks(binding):
        result = await hook.passed(copied(call), result, context)
    return result


def copied(call: ToolCall) -> ToolCall:
    """The call with arguments of its own, for code that may edit them."""
    return ToolCall(call.name, copied_arguments(call.arguments), call.id, call.original, call.grant)


def asks_anything(hooks: HookSet, view: ToolView) -> bool:
    """Whether any hook is there for any tool of the view."""
    return any(hooks.execution_hooks(one) or hooks.result_hooks(one) for one in view.values())


class ResultHooksOnly(HookSet):
    """The result hooks of a set, for calls whose execution hooks have been asked already."""

    def __init__(self, hooks: HookSet) -> None:
        """Take the result hooks of `hooks`."""
        super().__init__(deadline=hooks.deadline)
        self._results.extend(hooks._results)
