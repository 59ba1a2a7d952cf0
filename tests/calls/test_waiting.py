"""What a deadline is set for: hooks that may give up their turn (F39)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import anyio
import pytest

from mcp_toolset import Reject, RunNormally, ToolCall, ToolResult
from mcp_toolset.calls.decision import Decision
from mcp_toolset.calls.hooks import awaits, bound, bound_result
from mcp_toolset.tools.call import LOCAL_CONTEXT

CALL = ToolCall("weather", {"city": "Oslo"})


async def at_once(call: ToolCall, input: dict[str, Any]) -> Decision:
    return RunNormally(input)


async def after_a_wait(call: ToolCall, input: dict[str, Any]) -> Decision:
    await anyio.sleep_forever()
    return RunNormally(input)


async def in_a_block(call: ToolCall, input: dict[str, Any]) -> Decision:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
    return RunNormally(input)


async def in_a_loop(call: ToolCall, input: dict[str, Any]) -> Decision:
    send, receive = anyio.create_memory_object_stream[int]()
    with send, receive:
        async for _ in receive:
            pass
    return RunNormally(input)


async def in_a_comprehension(call: ToolCall, input: dict[str, Any]) -> Decision:
    send, receive = anyio.create_memory_object_stream[int]()
    with send, receive:
        return RunNormally({"all": [item async for item in receive]})


def wrapped(hook: Callable[..., Awaitable[Decision]]) -> Callable[..., Awaitable[Decision]]:
    @wraps(hook)
    async def outer(call: ToolCall, input: dict[str, Any]) -> Decision:
        return await hook(call, input)

    return outer


class Policy:
    async def at_once(self, call: ToolCall, input: dict[str, Any]) -> Decision:
        return RunNormally(input)

    async def __call__(self, call: ToolCall, input: dict[str, Any]) -> Decision:
        return await after_a_wait(call, input)


@pytest.mark.parametrize(
    ("hook", "may_wait"),
    [
        (at_once, False),
        (Policy().at_once, False),
        (after_a_wait, True),
        (in_a_block, True),
        (in_a_loop, True),
        (in_a_comprehension, True),
        (wrapped(at_once), True),
        (Policy(), True),
        (partial(at_once), True),
        (lambda call, input: after_a_wait(call, input), True),
    ],
)
def test_f39_only_what_awaits_nothing_goes_without_a_deadline(hook: Any, may_wait: bool):
    assert awaits(hook) is may_wait


@pytest.mark.anyio
@pytest.mark.parametrize(
    "hook", [after_a_wait, in_a_block, in_a_loop, in_a_comprehension, wrapped(after_a_wait)]
)
async def test_f39_whatever_a_hook_waits_for_its_deadline_ends_it(hook: Any):
    with anyio.fail_after(30):
        decision = await bound(hook, 0.01).decide(CALL, LOCAL_CONTEXT)
    assert isinstance(decision, Reject) and "no answer in 0.01 s" in decision.reason


@pytest.mark.anyio
async def test_f39_a_time_out_of_a_hook_s_own_is_a_failure_and_no_missed_deadline():
    async def impatient(call: ToolCall, input: dict[str, Any]) -> Decision:
        with anyio.fail_after(0):
            await anyio.sleep_forever()
        return RunNormally(input)

    decision = await bound(impatient, 5).decide(CALL, LOCAL_CONTEXT)
    assert isinstance(decision, Reject) and "failed" in decision.reason


@pytest.mark.anyio
async def test_o9_a_result_hook_that_hangs_withholds_the_result():
    async def hanging(call: ToolCall, result: ToolResult) -> ToolResult | None:
        await anyio.sleep_forever()
        return None

    with anyio.fail_after(30):
        seen = await bound_result(hanging, 0.01).passed(CALL, ToolResult.of_text("secret"), LOCAL_CONTEXT)
    assert seen.is_error and "withheld" in seen.text and "secret" not in seen.text


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [at_once, after_a_wait])
async def test_f39_a_cancelled_caller_ends_its_hook_and_is_no_refusal(hook: Any):
    with anyio.CancelScope() as scope:
        scope.cancel()
        decision = await bound(hook, 5).decide(CALL, LOCAL_CONTEXT)
        assert hook is at_once and decision == RunNormally(CALL.arguments)
    assert scope.cancelled_caught is (hook is after_a_wait)
