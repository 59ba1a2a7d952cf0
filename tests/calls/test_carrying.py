"""Rules that a toolset carries apply to its tools wherever it is mounted, and to no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp_types import CallToolResult, TextContent

from mcp_toolset import (
    Complete,
    Descriptions,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import DefinitionError, UnknownNameError
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio


@tool
def delete(id: str) -> str:
    """Delete."""
    return f"deleted {id}"


@tool
def look(id: str) -> str:
    """Look."""
    return f"saw {id}"


def noting(seen: list[str], name: str) -> Any:
    async def layer(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(f"{name} {call.name}")
        return await next()

    return layer


def refusing(name: str) -> HookSet:
    hooks = HookSet()

    @hooks.execution(name)
    async def no(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject(f"not {input['id']}")

    return hooks


def told(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def called(tools: Toolset[Any], name: str, rules: Rules | None = None) -> str:
    server = ToolsetServer(tools, rules=rules)
    async with server:
        return (await server.call(ToolCall(name, {"id": "1"}), ToolContext())).text


async def test_s6_rules_apply_to_no_tool_of_another_toolset() -> None:
    seen: list[str] = []
    mine = Toolset(delete).carrying(Rules(hooks=refusing("delete"), middleware=[noting(seen, "mine")]))
    tools = Toolset(mine.prefixed("a"), Toolset(delete, look).prefixed("b"))
    assert await called(tools, "a_delete") == "Rejected: not 1"
    assert await called(tools, "b_delete") == "deleted 1"
    assert await called(tools, "b_look") == "saw 1"
    assert seen == ["mine a_delete"]


async def test_s6_the_host_is_outside_then_the_outer_toolset_then_the_inner_one() -> None:
    seen: list[str] = []
    inner = Toolset(look).carrying(Rules(middleware=[noting(seen, "inner")]))
    outer = Toolset(inner, delete).carrying(Rules(middleware=[noting(seen, "outer")]))
    assert await called(outer, "look", Rules(middleware=[noting(seen, "host")])) == "saw 1"
    assert seen == ["host look", "outer look", "inner look"]


async def test_s6_a_carried_hook_sees_what_the_hosts_hook_made_of_the_call() -> None:
    host, own = HookSet(), HookSet()

    @host.execution("look")
    async def edit(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({"id": input["id"] + "2"})

    @own.execution("look")
    async def answer(call: ToolCall, input: dict[str, Any]) -> Complete:
        return Complete(f"own {input['id']}")

    tools = Toolset(look).carrying(Rules(hooks=own))
    assert await called(tools, "look", Rules(hooks=host)) == "own 12"


async def test_s6_descriptions_travel_and_the_hosts_win() -> None:
    tools = Toolset(look, delete).carrying(
        Rules(descriptions=Descriptions({"look": "Mine.", "delete": "Mine."}))
    )
    server = ToolsetServer(
        tools.prefixed("a"), rules=Rules(descriptions=Descriptions({"a_delete": "The host's."}))
    )
    async with server:
        listed = {one.name: one.definition.description for one in server.bindings()}
    assert listed == {"a_look": "Mine.", "a_delete": "The host's."}


async def test_s6_a_description_hook_that_fails_leaves_its_tool_out_alone() -> None:
    hooks = HookSet()

    @hooks.description("look")
    async def fail(definition: Any) -> str:
        raise ValueError("dark")

    server = ToolsetServer(Toolset(Toolset(look, delete).carrying(Rules(hooks=hooks))))
    async with server:
        assert [one.name for one in server.bindings()] == ["delete"]


@pytest.mark.needs("model_loop")
async def test_s6_a_round_runs_under_what_a_toolset_carries() -> None:
    from mcp_toolset.rounds import ToolRound

    view = Toolset(delete, look).carrying(Rules(hooks=refusing("delete"))).view()
    round = ToolRound.from_calls(
        [ToolCall("delete", {"id": "1"}, "c1"), ToolCall("look", {"id": "2"}, "c2")], view
    )
    plan = await round.apply()
    report = await plan.run_pending()
    answers = [one["content"] for one in plan.commit(report).to_openai()[1:]]
    assert answers == ["Rejected: not 1", "saw 2"]


async def test_s6_deferred_tools_carry_their_rules() -> None:
    tools = Toolset(delete, look).carrying(Rules(hooks=refusing("delete"))).deferred()
    server = ToolsetServer(tools)
    async with server, Client(server.lowlevel) as client:
        found = await client.call_tool("search_tools", {"query": "delete", "resolve": 1})
        (resolved,) = [one for one in json.loads(told(found))["resolved"] if one["id"] == "delete"]
        arguments = {"grant": resolved["grant"], "arguments": {"id": "1"}}
        result = await client.call_tool("call_tool", arguments)
        assert told(result) == "Rejected: not 1"


def test_s6_names_are_checked_where_the_rules_are_given() -> None:
    with pytest.raises(UnknownNameError, match="delte"):
        Toolset(delete).carrying(Rules(hooks=refusing("delte")))
    with pytest.raises(DefinitionError, match="observers see every call"):
        Toolset(delete).carrying(Rules(observers=[print]))
    with pytest.raises(DefinitionError, match="3"):
        Toolset(delete).carrying([3])


@given(st.lists(st.sampled_from(["prefix", "nest", "carry"]), max_size=6))
def test_s6_any_nesting_keeps_the_order_of_what_is_carried(steps: list[str]) -> None:
    tools: Toolset[Any] = Toolset(look)
    expected: list[int] = []
    for number, step in enumerate(steps):
        if step == "prefix":
            tools = tools.prefixed("p")
        elif step == "nest":
            tools = Toolset(tools)
        else:
            rules = Rules(middleware=[noting([], str(number))])
            tools = tools.carrying(rules)
            expected.insert(0, id(rules))
    (binding,) = tools.bindings()
    assert [id(one.rules) for one in binding.carried] == expected
