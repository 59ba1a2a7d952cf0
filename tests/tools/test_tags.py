"""Tags and private metadata of tools: for selectors and policies, never for a client."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp
import pytest
from pydantic import BaseModel

from mcp_toolset import (
    HookSet,
    InputTool,
    Reject,
    Rules,
    Tool,
    ToolBuilder,
    ToolCall,
    Toolset,
    ToolsetServer,
    tagged,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import ToolAvailability

pytestmark = pytest.mark.anyio

PRIVATE = {"owner": "zz-payments", "cost": 3}


@tool(tags=["zz-money", "zz-write"], metadata=PRIVATE)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(tags=["zz-money"])
def balance() -> int:
    """Tell the balance."""
    return 1


@tool
def ping() -> str:
    """Ping."""
    return "pong"


class Query(BaseModel):
    text: str


TOOLS = Toolset(Toolset(pay, balance).prefixed("bank"), ping)


def test_s4_tags_select_tools_wherever_they_are_nested():
    assert list(TOOLS.view(ToolAvailability.only(tagged("zz-money")))) == ["bank_pay", "bank_balance"]
    assert list(TOOLS.off(tagged("zz-money", "zz-write")).view()) == ["bank_balance", "ping"]
    assert TOOLS.filtered(exclude=[tagged("zz-money")]).names() == ["ping"]
    assert TOOLS.filtered(lambda one: one.metadata.get("cost", 0) > 2).names() == ["bank_pay"]
    assert (
        TOOLS.tagged("all", metadata={"team": "a"}).filtered(include=[tagged("all")]).names() == TOOLS.names()
    )
    noted = TOOLS.tagged("all", metadata={"team": "a"}).find(pay)
    assert noted.metadata == {**PRIVATE, "team": "a"} and noted.tags == {"zz-money", "zz-write", "all"}
    assert ping.tagged("x").tags == {"x"} and ping.tags == frozenset()


@pytest.mark.needs("model_loop")
async def test_s4_hooks_are_registered_for_a_tag():
    from mcp_toolset.rounds import ToolRound

    hooks = HookSet()

    @hooks.execution(tagged("zz-write"))
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("not today")

    calls = [ToolCall("bank_pay", {"amount": 1}, "1"), ToolCall("bank_balance", {}, "2")]
    plan = await ToolRound.from_calls(calls, TOOLS.view()).apply(hooks)
    assert [done.call.name for done in plan.rejected] == ["bank_pay"]
    assert [call.name for call in plan.pending] == ["bank_balance"]


@pytest.mark.needs("model_loop")
async def test_s4_no_client_and_no_provider_sees_tags_and_metadata():
    view = TOOLS.view()
    made = [
        [one.to_wire() for one in view.values()],
        view.to_openai(),
        view.to_openai_responses(),
        view.to_anthropic(),
        view.to_gemini(),
        pay.to_openai(),
    ]
    with anyio.fail_after(30):
        async with ToolsetServer(TOOLS) as server, mcp.Client(server.lowlevel) as client:
            listed = await client.list_tools()
            answer = await client.call_tool("bank_pay", {"amount": 1})
    text = json.dumps(made) + listed.model_dump_json() + answer.model_dump_json()
    assert "bank_pay" in text and "zz-" not in text
    assert pay.definition.digest == tool(pay.function).definition.digest  # type: ignore[type-var]


def test_s4_every_way_to_define_a_tool_takes_them_and_stored_data_keeps_them():
    ways = [
        pay,
        Tool.from_schema("pay", {}, tags=["zz-money", "zz-write"], metadata=PRIVATE),
        ToolBuilder("pay").options(tags=["zz-money", "zz-write"], metadata=PRIVATE).build(),
        InputTool.of(Query, name="pay", tags=["zz-money", "zz-write"], metadata=PRIVATE),
    ]
    for made in ways:
        stored = Tool.from_data(json.loads(json.dumps(made.to_data())))
        for one in (made, stored):
            assert (one.tags, one.metadata) == ({"zz-money", "zz-write"}, PRIVATE)
    with pytest.raises(TypeError, match="cannot be changed in place"):
        pay.metadata["cost"] = 4  # type: ignore[index]


@pytest.mark.parametrize("wrong", ["money", [""], [3]])
def test_s4_what_is_no_tag_is_refused(wrong: Any):
    with pytest.raises(DefinitionError, match="tags are several non-empty texts"):
        tool(name="x", tags=wrong)(lambda: 1)
    with pytest.raises(DefinitionError, match="at least one tag"):
        tagged()


@pytest.mark.needs("model_loop")
async def test_s4_a_policy_is_for_the_tools_of_a_tag():
    from mcp_toolset.rounds import ToolRound

    rules = Rules(tool_middleware={tagged("zz-money"): [PermissionChecker(lambda call: "deny")]})
    calls = [ToolCall("bank_pay", {"amount": 1}, "1"), ToolCall("ping", {}, "2")]
    plan = await ToolRound.from_calls(calls, TOOLS.view()).apply(rules)
    told = [done.result.text for done in await plan.run_pending()]
    assert "not permitted" in told[0] and told[1] == "pong"
