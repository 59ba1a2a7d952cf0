from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.contexts import OnWire
from tests.support.refusals import waits

from mcp_toolset import (
    HookSet,
    Reject,
    Rules,
    RunNormally,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    rejection_reason,
)
from mcp_toolset.errors import CallError, DefinitionError, RetrySuggestedError
from mcp_toolset.middleware import CallNext, RetryLimit, ToolMiddleware

pytestmark = pytest.mark.anyio

OK = ToolResult.of_text("fine")
BAD = ToolResult.of_error("broken")
ASKS = ToolResult({"resultType": "input_required", "inputRequests": {}})
HOST = ToolContext()


class Limited:
    """Two tools that answer what they are told to, behind a limit."""

    def __init__(self, times: int, *inner: ToolMiddleware, hooks: HookSet | None = None, **options: Any):
        self.time = 0.0
        self.answer: Any = BAD
        self.ran = 0
        self.limit = RetryLimit(times, clock=lambda: self.time, **options)
        self.view = Toolset(*(Tool.from_schema(name, {}, self._run) for name in ("probe", "other"))).view()
        self.rules = Rules(hooks or HookSet(), middleware=[self.limit, *inner])

    async def _run(self, arguments: dict[str, Any]) -> ToolResult:
        self.ran += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def call(self, answer: Any = None, name: str = "probe", context: ToolContext = HOST) -> ToolResult:
        self.answer = BAD if answer is None else answer
        with anyio.fail_after(30):
            return await self.view.execute(name, {}, context, rules=self.rules)

    async def runs(self, answer: Any = None, name: str = "probe", context: ToolContext = HOST) -> bool:
        before = self.ran
        await self.call(answer, name, context)
        return self.ran > before


async def test_n8_after_the_limit_the_tool_is_refused_with_a_clear_text():
    limited = Limited(3)
    assert [await limited.runs() for _ in range(5)] == [True, True, True, False, False]
    refused = await limited.call()
    text = "probe has failed 3 times in a row; it can be tried again in 60 s, so do something else"
    reason = rejection_reason(refused)
    assert reason is not None and (reason.reason, reason.source) == (text, "policy")
    assert waits(refused) == 60


@pytest.mark.parametrize(
    "failure", [BAD, CallError("no"), RuntimeError("bug"), RetrySuggestedError("b", after=1)]
)
async def test_n8_error_results_and_exceptions_count_alike(failure: Any):
    limited = Limited(2)
    assert [await limited.runs(failure) for _ in range(3)] == [True, True, False]


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=20))
async def test_n8_a_success_resets_the_count(times: int, successes: list[bool]):
    limited, in_a_row = Limited(times), 0
    for success in successes:
        assert await limited.runs(OK if success else BAD) is (in_a_row < times)
        in_a_row = in_a_row if in_a_row >= times else 0 if success else in_a_row + 1


async def test_n8_each_tool_and_each_caller_is_counted_by_itself():
    limited = Limited(1)
    ann, bob, somebody = OnWire("ann"), OnWire("bob"), OnWire(None)
    assert await limited.runs(context=ann)
    assert not await limited.runs(context=ann)
    assert await limited.runs(name="other", context=ann)
    assert await limited.runs(context=bob) and await limited.runs(context=HOST)
    assert await limited.runs(context=somebody) and not await limited.runs(context=OnWire(None))


async def test_p9_after_a_while_one_call_is_tried_and_its_failure_begins_the_refusal_anew():
    limited = Limited(2, recover_after=10)
    await limited.call()
    await limited.call()
    limited.time = 9.9
    assert not await limited.runs()
    limited.time = 10
    assert await limited.runs() and not await limited.runs()
    limited.time = 20
    assert await limited.runs(OK)
    assert await limited.runs() and await limited.runs() and not await limited.runs()


async def test_p9_while_one_call_is_on_trial_the_others_wait():
    entered, leave = anyio.Event(), anyio.Event()

    async def hold(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        if limited.time:
            entered.set()
            await leave.wait()
        return await next()

    limited = Limited(1, hold, recover_after=10)
    await limited.call()
    limited.time = 10
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(limited.call, OK)
            await entered.wait()
            refused = await limited.view.execute("probe", rules=limited.rules)
            assert "can be tried again in 10 s" in refused.text
            leave.set()
    assert limited.ran == 2


async def test_n8_without_recovery_only_a_reset_ends_the_refusal():
    limited = Limited(1, recover_after=None)
    await limited.call()
    await limited.call(name="other")
    limited.time = 1e9
    refused = await limited.call()
    assert "probe has failed; it is not run any more" in refused.text and waits(refused) is None
    limited.limit.reset("probe")
    assert await limited.runs(OK) and not await limited.runs(name="other")
    limited.limit.reset()
    assert await limited.runs(OK, name="other")


async def test_n8_refusals_and_questions_are_no_failures_and_no_successes():
    hooks, closed = HookSet(), True

    @hooks.execution("*")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Any:
        return Reject("closed") if closed else RunNormally(input)

    limited = Limited(2, hooks=hooks)
    for _ in range(5):
        assert "closed" in (await limited.call()).text
    closed = False
    assert await limited.runs(BAD)
    assert await limited.runs(ASKS)
    assert await limited.runs(BAD)
    assert not await limited.runs(OK)


async def test_n8_a_cancelled_call_does_not_count():
    async def hang(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        if limited.answer is OK:
            return await next()
        await anyio.sleep_forever()
        raise AssertionError

    limited = Limited(1, hang)
    with anyio.move_on_after(0.01):
        await limited.view.execute("probe", rules=limited.rules)
    assert await limited.runs(OK)


async def test_n8_the_memory_is_bounded():
    limited = Limited(1, max_entries=2)
    for session in "abc":
        assert await limited.runs(context=OnWire(session))
    assert await limited.runs(context=OnWire("a"))
    assert not await limited.runs(context=OnWire("c"))


async def test_n7_a_suggested_retry_says_when_to_the_model_and_to_programs():
    fault = RetrySuggestedError("the printer warms up", after=2.5)
    limited = Limited(9)
    result = await limited.call(fault)
    assert result.is_error and result.text == "the printer warms up; try again in 2.5 s"
    assert waits(result) == 2.5


@pytest.mark.parametrize(
    "options", [{"times": 0}, {"times": 1, "recover_after": 0}, {"times": 1, "recover_after": -1}]
)
def test_n8_limits_are_positive(options: dict[str, Any]):
    with pytest.raises(DefinitionError, match="is a positive number"):
        RetryLimit(**options)
