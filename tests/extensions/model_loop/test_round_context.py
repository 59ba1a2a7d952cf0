"""What the tools of an owned loop see of their surroundings (H3, H4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_toolset import ToolCall, ToolContext, ToolRegistry, Toolset, tool
from mcp_toolset.errors import CapabilityError, DefinitionError
from mcp_toolset.rounds import BackgroundWork, EventLog, RoundContext, ToolRound
from mcp_toolset.search import SearchIndex

pytestmark = pytest.mark.anyio


async def outcome(tools: Toolset, context: ToolContext, name: str, **arguments: Any) -> Any:
    view = tools.view()
    plan = ToolRound.from_calls([ToolCall(name, arguments, "1")], view).plan
    (done,) = (await plan.run_pending(context=context)).results
    return done.result


@tool
async def who(n: int, context: ToolContext) -> dict[str, Any]:
    """Say what is called."""
    return {"name": context.name, "arguments": dict(context.arguments), "session": context.session}


@pytest.mark.parametrize("context", [ToolContext(), ToolContext().injecting({"a": 1}), RoundContext()])
async def test_h3_the_handler_s_context_has_the_call(context: ToolContext):
    result = await outcome(Toolset(who).prefixed("x"), context, "x_who", n=1)
    assert result.structured == {"name": "x_who", "arguments": {"n": 1}, "session": None}


@tool
async def use(what: str, context: ToolContext) -> Any:
    """Use a capability."""
    match what:
        case "session":
            return list(context.snapshot().tools)
        case "catalog":
            return [hit.name for hit in context.search("use")]
        case "membership":
            return dict(context.membership.members())
        case "background":
            return await context.background.result(context.background.start(context_free), timeout=30)
        case "events":
            return context.append_event("used", {"n": 1}).tool
        case _:
            return (await context.ask("Well?")).content


async def context_free() -> str:
    return "worked"


async def answering(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    assert method == "elicitation/create" and params is not None
    return {"action": "accept", "content": {"answer": "yes"}}


CAPABILITIES = {
    "session": ["use"],
    "catalog": ["use"],
    "membership": {"use": True},
    "background": "worked",
    "events": "use",
    "ask": {"answer": "yes"},
}


@pytest.mark.parametrize("what", CAPABILITIES)
async def test_h4_a_loop_s_tool_has_what_the_context_was_given_and_nothing_else(what: str):
    tools = Toolset(use)
    view, members, log = tools.view(), ToolRegistry(tools).membership, EventLog()
    async with BackgroundWork() as work:
        given: dict[str, Any] = {
            "session": {"view": view},
            "catalog": {"search": SearchIndex([use.definition]).search},
            "membership": {"membership": members},
            "background": {"background": work},
            "events": {"events": log},
            "ask": {"request": answering},
        }
        for name, offer in given.items():
            result = await outcome(tools, RoundContext(**offer), "use", what=what)
            if name == what:
                assert result.text in (
                    CAPABILITIES[what],
                    json.dumps(CAPABILITIES[what], separators=(",", ":")),
                )
            else:
                assert result.is_error and f"capability '{what}' was not granted" in result.text
                assert "grant it with RoundContext(" in result.text


async def test_h4_a_grant_can_be_for_some_tools_of_a_loop():
    log = EventLog()
    context = RoundContext(session="s", events=log, grant=())
    refused = await outcome(Toolset(use), context, "use", what="events")
    assert refused.is_error and "not granted" in refused.text
    allowed = await outcome(Toolset(use).granting("events"), context, "use", what="events")
    assert not allowed.is_error
    assert [(event.session, event.tool, event.call_id) for event in log.since()] == [("s", "use", "1")]


def test_h4_a_grant_of_what_is_not_there_is_refused():
    with pytest.raises(DefinitionError, match="no capability 'magic'"):
        RoundContext(grant=["magic"])
    with pytest.raises(
        CapabilityError, match=r"'events' was not granted; grant it with RoundContext\(events=…"
    ):
        RoundContext(grant=["events"]).append_event("x")


async def test_h4_an_event_without_a_json_form_is_the_tool_s_error():
    @tool
    async def odd(size: int, context: ToolContext) -> str:
        """Note something odd."""
        context.append_event("odd", object() if size == 0 else "x" * size)
        return "noted"

    context = RoundContext(events=(log := EventLog()))
    for size, message in ((0, "no JSON form"), (100_000, "bytes; at most")):
        result = await outcome(Toolset(odd), context, "odd", size=size)
        assert result.is_error and message in result.text
    assert not log.since()
    with pytest.raises(DefinitionError):
        EventLog(max_events=0)
