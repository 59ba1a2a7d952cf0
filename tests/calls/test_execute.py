"""The shortest ways to run a tool from Python check arguments, and obey rules, as a served call does."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest

from mcp_toolset import (
    HookSet,
    Rules,
    RunNormally,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import InvalidArgumentsError, StateError, UnknownNameError
from mcp_toolset.middleware import PermissionChecker, Timeout, tool_middleware

pytestmark = pytest.mark.anyio

runs: list[int] = []


@pytest.fixture(autouse=True)
def forgotten() -> None:
    runs.clear()


@tool
def pay(amount: int) -> int:
    """Pay."""
    runs.append(amount)
    if amount < 0:
        raise ValueError("not negative")
    return amount


TOOLS = Toolset(pay).prefixed("shop")


async def every_way(arguments: dict[str, Any], rules: Rules | None = None) -> list[ToolResult]:
    return [
        await pay.execute(arguments, rules=rules),
        await TOOLS.execute("shop_pay", arguments, rules=rules),
        await TOOLS.execute(pay, arguments, rules=rules),
        await TOOLS.view().execute("shop_pay", arguments, rules=rules),
    ]


@pytest.mark.parametrize("sent", [{"amount": "3"}, {}, {"amount": 3, "more": 1}, {"amount": None}])
async def test_u24_execute_refuses_what_a_served_call_refuses(sent: dict[str, Any]):
    async with ToolsetServer(TOOLS) as server:
        served = await server.call_tool("shop_pay", sent)
    assert served.is_error
    for way in (pay.execute, partial(TOOLS.execute, "shop_pay"), partial(TOOLS.view().execute, pay)):
        with pytest.raises(InvalidArgumentsError) as fault:
            await way(sent)
        assert str(fault.value).split(": ", 1)[1] == served.text.split(": ", 1)[1]
    assert runs == []


async def test_u24_execute_obeys_the_rules_that_it_is_given():
    hooks = HookSet()

    @hooks.execution("pay")
    async def double(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({"amount": input["amount"] * 2})

    @hooks.result("*")
    async def told(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_structured({"result": result.structured["result"] + 1})

    @tool_middleware
    async def more(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
        call.arguments["amount"] += 1
        return await next()

    rules = Rules(hooks=hooks, tool_middleware={pay: [more]}, middleware=[Timeout(5)])
    assert [done.structured for done in await every_way({"amount": 3}, rules)] == [{"result": 9}] * 4
    assert runs == [8] * 4
    assert [done.text for done in await every_way({"amount": 3})] == ["3"] * 4


async def test_u24_execute_under_rules_comes_to_what_a_served_call_does():
    def policy(call: ToolCall) -> Literal["allow", "deny"]:
        return "deny" if call.arguments["amount"] > 9 else "allow"

    rules = Rules(middleware=[PermissionChecker(policy)])
    async with ToolsetServer(Toolset(pay), rules=rules) as server:
        for amount in (3, 10, -1):
            served = await server.call_tool("pay", {"amount": amount})
            assert (await pay.execute({"amount": amount}, rules=rules)).wire == served.wire
    with pytest.raises(ValueError, match="not negative"):
        await pay.execute({"amount": -1})
    with pytest.raises(InvalidArgumentsError):
        await pay.execute({"amount": "3"}, rules=rules)


async def test_u24_rules_for_other_tools_are_told_by_a_toolset_and_not_by_a_tool():
    hooks = HookSet()

    @hooks.execution("refund")
    async def nothing(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    assert (await pay.execute({"amount": 3}, rules=Rules(hooks=hooks))).text == "3"
    with pytest.raises(UnknownNameError, match="refund"):
        await TOOLS.execute("shop_pay", {"amount": 3}, rules=Rules(hooks=hooks))


async def test_u24_the_bare_handler_has_a_longer_name():
    assert (await pay.call_handler_unchecked({"amount": "3"})).text == "3"
    with pytest.raises(StateError, match="has no handler"):
        await Tool.from_schema("ask", {}).call_handler_unchecked({})
