"""What an owned loop waits for: the answers of hooks, and the runs of tools (A11, A12).

It knows calls and bindings; which calls there are and what becomes of the results is `rounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import anyio
from pydantic_core import PydanticSerializationError

from mcp_toolset.calls.decision import Complete, Reject
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.providers import Arguments, AssistantCall
from mcp_toolset.errors import CallError, RoundError, UnknownToolError, UpstreamProtocolError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.view import ToolBinding, ToolView

RUN_DEADLINE: Final = 30.0
"""Seconds that one tool may run unless told otherwise (A11)."""

RUN_CONCURRENCY: Final = 16
"""Tools of a round that run at the same time unless told otherwise."""


@dataclass(frozen=True, slots=True)
class HandledCall:
    """A call that a hook has answered; its tool does not run (L18)."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that a hook or a policy has refused; `decision` has the reason and the source (L18, L23)."""

    call: ToolCall
    decision: Reject


@dataclass(frozen=True, slots=True)
class CallResult:
    """A result with the call that it belongs to; `arguments` are those of the assistant's turn (L19)."""

    id: str
    name: str
    arguments: Arguments
    result: ToolResult

    @classmethod
    def of(cls, call: ToolCall | AssistantCall, output: Any) -> CallResult:
        """A result that the application has produced by itself: text, a value, or a `ToolResult` (L3).

        Raises:
            RoundError: the output has no JSON form.
        """
        try:
            result = Complete(output).result()
        except PydanticSerializationError as fault:
            raise RoundError(f"the output for {call.name} ({call.id}) has no JSON form: {fault}") from None
        return cls(call.id, call.name, original_of(call), result)


Answer = ToolCall | HandledCall | RejectedCall
"""What hooks make of a call; a call is still to run, with its last input."""


async def ask_hooks(call: ToolCall, binding: ToolBinding, hooks: HookSet, context: ToolContext) -> Answer:
    """Ask the hooks of a tool about a call, in order, after its gate (L17).

    A hook is given a copy of the arguments, and what it hands on is checked again even if it edited
    that copy in place (F40). A call that only stands for another is left for `run_calls`.
    """
    if binding.redirect is not None:
        return call
    if refusal := _gate_refusal(call, binding, context):
        return RejectedCall(call, refusal)
    for hook in hooks.execution_hooks(binding.name):
        decision = await hook.decide(_copied(call), context)
        if isinstance(decision, Reject):
            return RejectedCall(call, decision)
        if isinstance(decision, Complete):
            return _completed(call, decision)
        call = call.with_arguments(deepcopy(decision.input))
        if not binding.arguments.is_valid(call.arguments):
            faults = "; ".join(binding.arguments.problems(call.arguments))
            fault = f"a hook edited the arguments of {call.name} and they do not fit any more: {faults}"
            return RejectedCall(call, Reject(fault))
    return call


def _gate_refusal(call: ToolCall, binding: ToolBinding, context: ToolContext) -> Reject | None:
    """A hook's answer must not go around the gate, so it is asked first, as in a served call."""
    try:
        if binding.gate is not None:
            binding.gate(_copied(call), context)
    except CallError as fault:
        return Reject(str(fault), "policy")
    return None


def _completed(call: ToolCall, decision: Complete) -> HandledCall | RejectedCall:
    try:
        return HandledCall(call, decision.result())
    except PydanticSerializationError as fault:
        return RejectedCall(
            call, Reject(f"a hook answered {call.name} with a value that has no JSON form: {fault}")
        )


def original_of(call: ToolCall | AssistantCall) -> Any:
    """The arguments of a call as the assistant's turn has them (L19)."""
    original = call.original if isinstance(call, ToolCall) else None
    return call.arguments if original is None else original


def _copied(call: ToolCall) -> ToolCall:
    return ToolCall(call.name, deepcopy(call.arguments), call.id, call.original)


async def run_calls(
    calls: Sequence[ToolCall],
    view: ToolView,
    hooks: HookSet,
    context: ToolContext,
    timeout: float,  # noqa: ASYNC109
    concurrency: int,
) -> list[ToolResult]:
    """Run calls concurrently, each in a task of its own, and return the results in the calls' order.

    Whatever goes wrong with one call is that call's error result; its siblings finish. Cancellation
    from outside ends them all.

    Args:
        calls: Calls whose hooks have been asked.
        view: Where their tools are.
        hooks: Asked about calls that a calling tool stands for, whose hooks could not be asked before.
        context: The surroundings of the calls.
        timeout: Seconds for each tool, from its start.
        concurrency: How many run at the same time.

    Raises:
        RoundError: `timeout` or `concurrency` is not positive; nothing ran.
    """
    if not (timeout > 0 and concurrency > 0):
        found = f"{timeout:g} s and {concurrency}"
        raise RoundError(f"a run needs a positive timeout and concurrency, not {found}")
    called = {call.name: view[call.name] for call in calls}
    stands_for_others = any(binding.redirect is not None for binding in called.values())
    plain = ToolDispatch(called.values())
    redirected = ToolDispatch(view.values(), hooks=hooks) if stands_for_others else plain
    results: dict[int, ToolResult] = {}
    limiter = anyio.CapacityLimiter(concurrency)

    async def run(place: int, call: ToolCall) -> None:
        dispatch = plain if called[call.name].redirect is None else redirected
        async with limiter:
            results[place] = await _run(dispatch, _copied(call), context, timeout)

    async with anyio.create_task_group() as tasks:
        for place, call in enumerate(calls):
            tasks.start_soon(run, place, call)
    return [results[place] for place in range(len(calls))]


async def _run(dispatch: ToolDispatch, call: ToolCall, context: ToolContext, seconds: float) -> ToolResult:
    result = ToolResult.of_error(f"{call.name} gave no answer within {seconds:g} s and was stopped")
    with anyio.move_on_after(seconds):
        try:
            result = await dispatch.call(call, context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            result = ToolResult.of_error(str(fault))
    if result.is_complete:
        return result
    return ToolResult.of_error(f"{call.name} asks for input that nobody can give here; it did not finish")
