"""Questions within code: a legacy client is asked at once, the run of a modern one waits for its answers."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.support.asking import Person
from tests.support.code_client import CodeClient, code_client, workers

from mcp_toolset import AskUser, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.code import CodeMode
from mcp_toolset.policy import Approvals, Policy

pytestmark = pytest.mark.anyio

ERAS = ("legacy", "2026-07-28")
SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def order(context: ToolContext, item: str) -> dict[str, Any]:
    """Order an item in a size."""
    answer = await context.ask("Which size?", SIZE)
    ran.append(item)
    return {"item": item, "size": answer.content.get("size", answer.action)}


@tool
async def choose() -> AskUser:
    """Let the user choose."""
    return AskUser("Which one?")


@tool
async def price(item: str) -> dict[str, Any]:
    """The price of an item."""
    ran.append(f"price of {item}")
    return {"price": len(item)}


SHOP = Toolset(order, choose, price)
TWICE = """\
import asyncio
print('before')
hat, coat, cost = await asyncio.gather(order(item='hat'), order(item='coat'), price(item='hat'))
print('between')
shoe = await order(item='shoe')
[hat['size'], coat['size'], cost['price'], shoe['size']]
"""


@pytest.mark.parametrize("mode", ERAS)
async def test_m6_a_run_goes_on_with_the_answers_and_no_call_gets_the_answer_of_another(mode: str) -> None:
    person = Person({"size": "S"}, {"size": "M"}, {"size": "L"})
    options: dict[str, Any] = {"elicitation_callback": person, "capabilities": ["ask"]}
    async with code_client(SHOP, "order", "price", mode=mode, **options) as (client, _):
        told = await client.run(TWICE)
    assert told["value"] == ["S", "M", 3, "L"]
    assert told["printed"] == "before\nbetween\n" and len(person.asked) == 3
    # What has run before a question does not run again after it.
    assert sorted(ran) == ["coat", "hat", "price of hat", "shoe"]
    assert [each["name"] for each in told["calls"]].count("order") == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_m6_the_answer_to_a_tool_that_ends_with_a_question_is_its_result(mode: str) -> None:
    person = Person({"answer": "the red one"}, "decline")
    async with code_client(SHOP, "choose", mode=mode, elicitation_callback=person) as (client, _):
        assert "red" in str(await client.value("await choose()"))
        caught = "try:\n    await choose()\nexcept RuntimeError as e:\n    r = str(e)\nr"
        assert "declined" in await client.value(caught)


async def test_m6_a_client_that_cannot_be_asked_gets_a_failure_that_code_can_catch() -> None:
    async with code_client(SHOP, "order", capabilities=["ask"]) as (client, _):
        told = await client.run("await order(item='hat')")
    assert "ask in your own words: Which size?" in told["error"] and ran == []


@pytest.mark.parametrize("mode", ERAS)
async def test_m6_an_approval_is_asked_for_within_code(mode: str, tmp_path: Any) -> None:
    person = Person({"decision": "allow once"}, {"decision": "deny"})
    policy = Policy(ask=["price"])
    options: dict[str, Any] = {"policy": policy, "approvals": Approvals(tmp_path / "approvals.sqlite")}
    async with code_client(SHOP, "price", mode=mode, elicitation_callback=person, **options) as (client, _):
        told = await client.run("a = await price(item='hat')\nb = await price(item='coat')\n[a, b]")
    assert len(person.asked) == 2 and ran == ["price of hat"]
    assert "price" in told["error"] and [each["ok"] for each in told["calls"]] == [True, False]


class Steps:
    """A modern client that answers `input_required` by hand."""

    def __init__(self, client: CodeClient) -> None:
        self.client = client

    async def call(self, code: str, **more: Any) -> dict[str, Any]:
        arguments = {"code": code, "grants": self.client.grants, **more.pop("arguments", {})}
        params = {"name": "run_code", "arguments": arguments, **more}
        with anyio.fail_after(60):
            return await _sent(self.client.client, params)


async def _sent(client: Client, params: dict[str, Any]) -> dict[str, Any]:
    import mcp_types as types

    responses = params.pop("inputResponses", None)
    state = params.pop("requestState", None)
    result = await client.session.call_tool(
        params["name"],
        params["arguments"],
        input_responses=responses,
        request_state=state,
        allow_input_required=True,
    )
    assert isinstance(result, types.CallToolResult | types.InputRequiredResult)
    return result.model_dump(by_alias=True, exclude_none=True, mode="json")


async def test_m6_a_state_is_used_once_by_its_caller_for_its_code() -> None:
    code = "await order(item='hat')"
    person = Person()
    async with code_client(SHOP, "order", "price", elicitation_callback=person, capabilities=["ask"]) as (
        client,
        server,
    ):
        steps = Steps(client)
        first = await steps.call(code)
        assert first["resultType"] == "input_required"
        (key,) = first["inputRequests"]
        again = {
            "requestState": first["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"size": "S"}}},
        }
        assert "monty" not in json.dumps(first).lower()
        for wrong in ("await order(item='coat')", "1"):
            with pytest.raises(Exception, match="belongs to another call"):
                await steps.call(wrong, **again)
        with pytest.raises(Exception, match="belongs to another call"):
            await steps.call(code, **again, arguments={"grants": client.grants[:1]})
        done = await steps.call(code, **again)
        assert done["structuredContent"]["value"] == {"item": "hat", "size": "S"}
        with pytest.raises(Exception, match="used before"):
            await steps.call(code, **again)
    assert ran == ["hat"]


async def test_m6_a_waiting_run_holds_no_process_and_its_grants_are_checked_again() -> None:
    code = "b = await price(item='hat')\na = await order(item='hat')\n[a, b]"
    person = Person()
    async with code_client(
        SHOP, "order", "price", elicitation_callback=person, capabilities=["ask"], code=CodeMode(workers=1)
    ) as (client, server):
        steps = Steps(client)
        first = await steps.call(code)
        # With one process, another run would wait for ever if this one held it.
        assert await client.value("1 + 1") == 2 and len(workers()) == 1
        server.grants.revoke_all()
        (key,) = first["inputRequests"]
        responses = {key: {"action": "accept", "content": {"size": "S"}}}
        last = await steps.call(code, requestState=first["requestState"], inputResponses=responses)
    told = last["structuredContent"]
    assert "taken back" in told["error"] and ran == ["price of hat"]
    # What has run before the question is told, though the run has failed after it.
    assert [(each["name"], each["ok"]) for each in told["calls"]] == [("price", True), ("order", False)]


async def test_m6_too_many_waiting_runs_are_refused_by_the_name_of_the_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.code.extension.MAX_WAITING", 1)
    async with code_client(SHOP, "order", elicitation_callback=Person(), capabilities=["ask"]) as (client, _):
        steps = Steps(client)
        assert (await steps.call("await order(item='hat')"))["resultType"] == "input_required"
        told = await steps.call("await order(item='coat')")
    assert "order asks the user: too many runs wait" in told["structuredContent"]["error"]


async def test_m6_the_host_itself_cannot_be_asked_within_code() -> None:
    server = ToolsetServer(SHOP.deferred(code=True), capabilities=["ask"])
    async with server:
        found = await server.call_tool("resolve_tools", {"ids": ["order"]})
        grants = [one["grant"] for one in found.structured["tools"]]
        told = await server.call_tool("run_code", {"code": "await order(item='hat')", "grants": grants})
    assert told.is_error and "order" in told.text and ran == []
    assert workers() == []
