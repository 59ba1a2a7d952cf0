"""Middleware decides in an owned loop as it does in a served call, and asks through the round (X8, N4)."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from mcp_toolset import (
    AskUser,
    Complete,
    HookSet,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    rejection_reason,
    tool,
)
from mcp_toolset.errors import RoundError
from mcp_toolset.middleware import OutputFormatter, PermissionChecker, SchemaValidator, tool_middleware
from mcp_toolset.rounds import RoundContext, ToolRound

pytestmark = pytest.mark.anyio

runs: list[str] = []


@pytest.fixture(autouse=True)
def forgotten() -> None:
    runs.clear()


@tool
async def pay(amount: int = 1) -> str:
    """Pay."""
    runs.append(f"pay {amount}")
    return f"paid {amount}" + "!" * 50


@tool(manual=True)
def sign(contract: str = "") -> str:
    """Sign."""
    raise AssertionError("the application answers")


TOOLS = Toolset(pay, sign)
Permission = Literal["allow", "deny", "ask"]


def checker(answer: Permission) -> PermissionChecker:
    def policy(call: ToolCall) -> Permission:
        return answer

    return PermissionChecker(policy)


def turn(*names: str, view: Any = None, **arguments: Any) -> ToolRound:
    calls = [ToolCall(name, dict(arguments), f"c{place}") for place, name in enumerate(names)]
    return ToolRound.from_calls(calls, view or TOOLS.view())


async def looped(rules: Rules, name: str = "pay", **arguments: Any) -> ToolResult:
    plan = await turn(name, **arguments).apply(rules)
    await plan.run_pending()
    return plan.commit().results[0].result


async def served(rules: Rules, name: str = "pay", **arguments: Any) -> ToolResult:
    async with ToolsetServer(TOOLS, rules=rules) as server:
        return await server.call_tool(name, arguments)


async def test_u23_a_permission_checker_refuses_in_a_loop_as_when_served():
    rules = Rules(middleware=[checker("deny")])
    for result in (await served(rules), await looped(rules)):
        assert result.text == "Rejected: pay is not permitted by the policy of this server"
    assert runs == []


async def test_u23_middleware_goes_around_hooks_in_a_loop_as_when_served():
    hooks = HookSet()

    @hooks.execution("pay")
    async def cached(call: ToolCall, input: dict[str, Any]) -> Complete:
        return Complete("from a cache" + "!" * 50)

    @hooks.result("pay")
    async def seen(call: ToolCall, result: ToolResult) -> None:
        runs.append("seen")

    for layer in (checker("deny"), OutputFormatter(12)):
        rules = Rules(hooks=hooks, middleware=[layer])
        assert (await looped(rules)).wire == (await served(rules)).wire
    assert runs == ["seen", "seen"]


async def test_u23_middleware_for_one_tool_and_edits_in_it_reach_the_loop():
    @tool_middleware
    async def double(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
        call.arguments["amount"] = call.arguments.get("amount", 1) * 2
        return await next()

    rules = Rules(tool_middleware={"pay": [double]}, middleware=[OutputFormatter(7), SchemaValidator()])
    assert (await looped(rules, amount=4)).wire == (await served(rules, amount=4)).wire
    assert runs == ["pay 8"] * 2


async def test_u23_hooks_are_asked_once_however_rules_are_given():
    hooks, more = HookSet(), HookSet()
    for one, mark in ((hooks, "first"), (more, "then")):

        @one.execution("*")
        async def note(call: ToolCall, input: dict[str, Any], mark: str = mark) -> RunNormally:
            runs.append(mark)
            return RunNormally(input)

    plan = await turn("pay").apply(hooks)
    plan = await plan.apply(Rules(hooks=more), checker("allow"))
    assert runs == ["first"]
    await plan.run_pending()
    assert runs == ["first", "then", "pay 1"]


async def test_u23_ask_becomes_a_question_of_the_round_and_its_answer_runs_the_call():
    plan = await turn("pay", "sign", amount=3, view=TOOLS.filtered(exclude=["sign"]).view()).apply(
        checker("ask")
    )
    report = await plan.run_pending()
    (asked,) = report.questions
    assert asked.id == "c0" and "Allow the call of pay" in asked.question and asked.is_confirmation
    assert plan.status == "awaiting_user" and runs == []
    with pytest.raises(RoundError, match="True or False"):
        plan.answer("c0", "yes")
    assert plan.answer("c0", True) is None and plan.status == "idle"
    await plan.run_pending()
    assert runs == ["pay 3"] and plan.commit().results[0].result.text.startswith("paid 3")


@pytest.mark.parametrize("no", [False, None])
async def test_u23_a_no_refuses_the_call(no: bool | None):
    plan = await turn("pay").apply(checker("ask"))
    await plan.run_pending()
    plan.answer("c0", no)
    with pytest.raises(RoundError, match="has no result"):
        plan.commit()
    await plan.run_pending()
    assert rejection_reason(plan.commit().results[0].result) and runs == []


async def test_u23_a_question_without_an_answer_is_committed_and_nothing_has_run():
    plan = await turn("pay").apply(checker("ask"))
    await plan.run_pending()
    commit = plan.commit()
    assert "There is no answer yet" in commit.results[0].result.text and commit.questions and runs == []


async def test_u23_a_question_of_middleware_goes_on_in_another_process():
    rules = Rules(middleware=[checker("ask"), OutputFormatter(6)])
    round = turn("pay", amount=2)
    plan = await round.apply(rules)
    await plan.run_pending()
    stored = json.loads(json.dumps(round.to_state()))
    with pytest.raises(RoundError, match="rules="):
        ToolRound.from_state(stored, TOOLS.view(), hooks=HookSet())
    round = ToolRound.from_state(stored, TOOLS.view(), rules=rules)
    assert round.status == "awaiting_user"
    round.plan.answer("c0", True)
    stored = json.loads(json.dumps(round.to_state()))
    round = ToolRound.from_state(stored, TOOLS.view(), rules=rules)
    await round.plan.run_pending()
    assert runs == ["pay 2"] and round.plan.commit().results[0].result.text.startswith("paid 2\n[")


async def test_u23_hooks_inside_middleware_are_asked_in_another_process():
    hooks = HookSet()

    @hooks.execution("pay")
    async def more(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({"amount": input["amount"] + 1})

    rules = Rules(hooks=hooks, middleware=[checker("allow")])
    round = turn("pay", amount=2)
    await round.apply(rules)
    stored = json.loads(json.dumps(round.to_state()))
    await ToolRound.from_state(stored, TOOLS.view(), rules=rules).plan.run_pending()
    assert runs == ["pay 3"]


async def test_u23_a_loop_that_can_ask_is_asked_at_once():
    async def person(method: str, params: Any) -> dict[str, Any]:
        runs.append(params["message"])
        return {"action": "accept", "content": {}}

    plan = await turn("pay").apply(checker("ask"))
    report = await plan.run_pending(context=RoundContext(request=person))
    assert not report.questions and [line[:9] for line in runs] == ["Allow the", "pay 1"]


async def test_u23_a_manual_call_meets_the_middleware_before_the_application():
    plan = await turn("sign").apply(checker("deny"))
    assert plan.manual == ()
    with pytest.raises(RoundError, match="run_pending"):
        plan.submit("c0", "signed")
    await plan.run_pending()
    assert rejection_reason(plan.commit().results[0].result)

    plan = await turn("sign").apply(checker("allow"))
    assert [call.id for call in (await plan.run_pending()).manual] == ["c0"]
    plan.submit("c0", "signed")
    assert plan.commit().results[0].result.text == "signed"


async def test_u23_what_a_tool_asks_goes_through_middleware_and_its_answer_is_the_result():
    @tool
    async def book() -> AskUser:
        """Book a table."""
        runs.append("book")
        return AskUser("For how many?")

    plan = await turn("book", view=Toolset(book).view()).apply(checker("ask"))
    await plan.run_pending()
    plan.answer("c0", True)
    assert [asked.question for asked in (await plan.run_pending()).questions] == ["For how many?"]
    done = plan.answer("c0", "two")
    assert done is not None and done.result.text == "two" and runs == ["book"]


async def test_u23_no_question_has_a_tool_run_twice():
    @tool_middleware
    async def late(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
        result = await next()
        answer = await context.elicit("Was that right?")
        return result if answer.accepted else ToolResult.of_error("no")

    plan = await turn("pay").apply(late)
    report = await plan.run_pending()
    assert not report.questions and report[0].result.is_error and runs == ["pay 1"]
