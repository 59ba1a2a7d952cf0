"""Rates and budgets of replicas in a real store."""

import anyio
import pytest
from tests.shared.test_shared_state import replica

from mcp_toolset import Rules, ToolResult, Toolset, tool
from mcp_toolset.middleware import RateLimit
from mcp_toolset.policy import CallLimits, Limits

pytestmark = pytest.mark.anyio


@tool
def pay() -> str:
    """Pay."""
    return "paid"


@tool
def look() -> str:
    """Look."""
    return "seen"


VIEW = Toolset(pay, look).view()


async def called(rule: CallLimits | RateLimit, name: str = "pay") -> ToolResult:
    rules = Rules(guards=[rule]) if isinstance(rule, CallLimits) else Rules(middleware=[rule])
    return await VIEW.execute(name, rules=rules)


async def test_r1_replicas_share_a_rate_and_a_budget(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        for limits, told in (
            (Limits(rate="3/h"), "3 calls in 3600 s"),
            (Limits(calls="3/h"), "none is left"),
        ):
            desks = [CallLimits({"pay": limits}, store=each.store()) for each in (one, other)]
            answers = [(await called(desk)).text for desk in desks * 3]
            assert answers[:3] == ["paid"] * 3
            assert all(told in answer for answer in answers[3:])


async def test_r1_two_limits_of_one_caller_share_no_bucket(url: str) -> None:
    async with replica(url) as one:
        limits = {name: Limits(rate="1/h", calls="1/h") for name in ("pay", "look")}
        desk, names = CallLimits(limits, store=one.store()), ("pay", "look", "pay")
        assert [(await called(desk, name)).is_error for name in names] == [False, False, True]


async def test_r1_tokens_come_back(url: str) -> None:
    async with replica(url) as one:
        limit = RateLimit(1, 0.05, store=one.store())
        assert not (await called(limit)).is_error
        with anyio.fail_after(10):
            while (await called(limit)).is_error:
                pass
