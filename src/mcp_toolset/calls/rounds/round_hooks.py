"""Run hooks on the calls of a round before their tools run."""

from __future__ import annotations

from mcp_toolset.calls.pipeline.decision import Complete, Reject
from mcp_toolset.calls.pipeline.hook_chain import decided, seen
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.output_check import completed
from mcp_toolset.calls.pipeline.rejection import rejection
from mcp_toolset.calls.rounds.call_result import HandledCall, RejectedCall
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding, ToolView

Answer = ToolCall | HandledCall | RejectedCall
"""The outcome of hooks for a call: answered, refused, or to be run with its last input."""


async def ask_hooks(
    call: ToolCall, view: ToolView, hooks: HookSet, seeing: HookSet, context: ToolContext
) -> Answer:
    """Run the hooks of a tool on a call, in order, after its gate.

    A hook gets a copy of the arguments, and the arguments that it returns are checked again even if it edited
    that copy in place. Answers and refusals of hooks are shown to the result hooks in `seeing`. A call of a
    calling tool such as `call_tool` is left for when it runs.
    """
    binding = view[call.name]
    if binding.redirect is not None:
        return call
    found = await decided(call, binding, hooks.execution_hooks(binding, view.names), context)
    if isinstance(found, ToolCall):
        return found
    call, decision = found
    made = _completed(binding, decision) if isinstance(decision, Complete) else decision
    shown_to = seeing.result_hooks(binding, view.names)
    if isinstance(made, Reject):
        return RejectedCall(call, made, await seen(call, rejection(made), shown_to, context))
    return HandledCall(call, await seen(call, made, shown_to, context))


def _completed(binding: ToolBinding, decision: Complete) -> Reject | ToolResult:
    try:
        return completed(binding, decision)
    except InvalidOutputError as fault:
        return Reject(str(fault))


def asks_anything(hooks: HookSet, view: ToolView) -> bool:
    """Whether any tool of the view has a hook."""
    names = view.names
    return any(hooks.execution_hooks(one, names) or hooks.result_hooks(one, names) for one in view.values())


class HooksLeft(HookSet):
    """The hooks that a run of calls must still ask: all but the execution hooks outside of middleware."""

    def __init__(self, hooks: HookSet, inside: HookSet | None = None) -> None:
        """Take the hooks of `hooks`, but as execution hooks those of `inside` alone."""
        super().__init__()
        vars(self).update(vars(hooks))
        self._execution = [] if inside is None else [*inside._execution]
