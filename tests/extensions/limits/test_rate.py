import math
from fractions import Fraction
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.contexts import OnWire
from tests.support.refusals import waits

from mcp_toolset import Rules, ToolContext, ToolResult, Toolset, rejection_reason, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import RateLimit

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@tool
async def search() -> str:
    return "found"


@tool
async def fetch() -> str:
    return "fetched"


TOOLS, HOST = Toolset(search, fetch), ToolContext()


class Limited:
    """Tools behind a limit, with a clock to turn."""

    def __init__(self, calls: int, seconds: float, **options: Any) -> None:
        self.clock = Clock()
        self.limit = RateLimit(calls, seconds, clock=self.clock, **options)
        self.rules, self.view = Rules(middleware=[self.limit]), TOOLS.view()

    async def call(self, name: str = "search", context: ToolContext = HOST) -> ToolResult:
        with anyio.fail_after(30):
            return await self.view.execute(name, {}, context, rules=self.rules)

    async def runs(self, name: str = "search", context: ToolContext = HOST) -> bool:
        return not (await self.call(name, context)).is_error


async def test_p9_a_burst_passes_and_the_next_call_is_told_when_to_try_again():
    limited = Limited(3, 60)
    assert [await limited.runs() for _ in range(4)] == [True, True, True, False]
    refused = await limited.call()
    text = "search is limited to 3 calls in 60 s; try again in 20 s"
    reason = rejection_reason(refused)
    assert reason is not None and (reason.reason, reason.source) == (text, "policy")
    assert waits(refused) == 20
    limited.clock.time += 20
    assert [await limited.runs(), await limited.runs()] == [True, False]


async def test_p9_the_time_to_wait_is_said_in_tenths_rounded_up():
    limited = Limited(3, 10)
    for _ in range(3):
        await limited.call()
    refused = await limited.call()
    assert refused.text.endswith("limited to 3 calls in 10 s; try again in 3.4 s")
    assert waits(refused) == 3.4


@given(st.integers(1, 100), st.floats(0, 1e6))
async def test_p9_a_token_that_came_back_in_parts_is_whole(tenths: int, start: float):
    limited = Limited(1, tenths / 10)
    limited.clock.time = start
    await limited.call()
    while (after := waits(await limited.call())) is not None:
        assert after <= tenths / 10
        limited.clock.time += after if after <= 0.1 else 0.1
        assert limited.clock.time <= start + tenths / 10 + 1e-6


async def test_p9_a_refusal_takes_no_token():
    limited = Limited(1, 10)
    assert await limited.runs()
    for _ in range(5):
        limited.clock.time += 1
        assert not await limited.runs()
    limited.clock.time += 5
    assert await limited.runs()


async def test_p9_an_idle_bucket_holds_no_more_than_the_burst():
    limited = Limited(2, 1)
    limited.clock.time += 1_000_000
    assert [await limited.runs() for _ in range(3)] == [True, True, False]


ANN, BOB = OnWire("one"), OnWire(principal="bob")


@pytest.mark.parametrize(
    ("by", "passes"),
    [
        ("tool", {("search", 1): True, ("search", 2): False, ("fetch", 1): True}),
        ("caller", {("search", 1): True, ("search", 2): True, ("fetch", 1): False}),
        ("both", {("search", 1): True, ("search", 2): True, ("fetch", 1): True, ("fetch", 2): True}),
    ],
)
async def test_p9_what_is_counted_by_itself(by: Any, passes: dict[tuple[str, int], bool]):
    limited = Limited(1, 10, by=by)
    callers = {1: ANN, 2: BOB}
    assert {key: await limited.runs(key[0], callers[key[1]]) for key in passes} == passes
    assert not await limited.runs("search", ANN)


async def test_p9_callers_that_cannot_be_told_apart_share_a_bucket():
    limited = Limited(1, 10, by="caller")
    assert await limited.runs("search", OnWire())
    assert not await limited.runs("search", OnWire())
    assert await limited.runs("search", HOST)


async def test_p9_a_caller_is_its_principal_before_its_session():
    callers = [OnWire("s", "p"), OnWire("s"), OnWire(principal="s"), OnWire("s2", "p"), ToolContext()]
    limited = Limited(1, 10, by="caller")
    assert [await limited.runs(context=one) for one in callers] == [True, True, True, False, True]


@given(st.integers(1, 5), st.integers(1, 50), st.lists(st.integers(0, 30), max_size=30))
async def test_p9_no_window_has_more_than_the_burst_and_what_came_back(
    calls: int, seconds: int, pauses: list[int]
):
    limited, passed = Limited(calls, seconds), list[int]()
    now = 0
    for pause in pauses:
        now += pause
        limited.clock.time = float(now)
        if await limited.runs():
            passed.append(now)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            earned = Fraction(passed[last] - passed[first], seconds) * calls
            assert last - first + 1 <= calls + earned


@given(st.integers(1, 5), st.floats(0.05, 500), st.floats(0, 100))
async def test_p9_whoever_waits_as_long_as_told_gets_through(calls: int, seconds: float, pause: float):
    limited = Limited(calls, seconds)
    for _ in range(calls):
        assert await limited.runs()
    limited.clock.time += pause
    refused = await limited.call()
    if (after := waits(refused)) is not None:
        assert after <= seconds / calls + 0.1
        limited.clock.time += after
        assert await limited.runs()


async def test_p9_the_memory_is_bounded_and_the_longest_unused_goes_first():
    limited = Limited(1, 10, by="caller", max_entries=2)
    first, second, third = (OnWire(str(number)) for number in range(3))
    assert await limited.runs(context=first) and await limited.runs(context=second)
    assert not await limited.runs(context=first)
    assert await limited.runs(context=third)
    assert not await limited.runs(context=first)
    assert await limited.runs(context=second)


@pytest.mark.parametrize(
    ("calls", "seconds"), [(0, 1), (-1, 1), (1, 0), (1, -1), (1, math.inf), (1, math.nan)]
)
def test_p9_a_limit_is_positive(calls: int, seconds: float):
    with pytest.raises(DefinitionError, match="RateLimit: [a-z_]+ is a "):
        RateLimit(calls, seconds)


def test_p9_what_is_counted_is_one_of_three():
    with pytest.raises(DefinitionError, match="not by 'session'"):
        RateLimit(1, 1, by="session")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="max_entries is a positive number"):
        RateLimit(1, 1, max_entries=0)
