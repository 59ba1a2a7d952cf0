"""Our search in loops of one's own, where a conversation does not go straight."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from mcp_toolset import (
    DynamicToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import ToolRound, ToolSearch
from mcp_toolset.search import SearchIndex

pytestmark = pytest.mark.anyio

Form = Literal["openai", "anthropic", "openai_responses"]
FORMS: tuple[Form, ...] = ("openai", "anthropic", "openai_responses")


@tool
def get_weather(city: str) -> str:
    """Get the weather forecast of a city."""
    return f"sunny in {city}"


@tool
def delete_invoice(id: str) -> str:
    """Delete an invoice."""
    return f"deleted {id}"


TOOLS: Toolset[Any] = Toolset(get_weather, delete_invoice).deferred()


def said(form: Form, *calls: tuple[str, dict[str, Any]]) -> Any:
    """A reply with calls, in the form of a provider."""
    made = [(f"c{place}", *call) for place, call in enumerate(calls)]
    if form == "anthropic":
        blocks = [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in made]
        return {"role": "assistant", "content": blocks}
    if form == "openai":
        functions = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for id, name, given in made
        ]
        return {"role": "assistant", "content": None, "tool_calls": functions}
    return [
        {"type": "tool_search_call", "call_id": id, "execution": "client", "arguments": given}
        if name == "search_tools"
        else {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(given)}
        for id, name, given in made
    ]


async def ran(round: ToolRound) -> list[str]:
    plan = await round.apply()
    return [one.result.text for one in plan.commit(await plan.run_pending()).results]


async def test_m5_a_chat_goes_on_after_a_restart_with_what_it_had_found() -> None:
    before = ToolSearch(TOOLS)
    await ran(ToolRound.of(said("openai", ("search_tools", {"query": "weather"})), before.export("openai")))
    stored = json.loads(json.dumps(before.found))
    exported = ToolSearch(TOOLS, found=stored).export("openai")
    reply = said("openai", ("get_weather", {"city": "Bern"}))
    assert await ran(ToolRound.of(reply, exported)) == ["sunny in Bern"]


async def test_m5_a_stored_search_refers_to_what_it_finds() -> None:
    reply = said("anthropic", ("search_tools", {"query": "weather", "limit": 1}))
    plan = await ToolRound.of(reply, ToolSearch(TOOLS).export("anthropic")).apply()
    state = json.loads(json.dumps(plan.to_state()))
    again = ToolRound.from_state(state, ToolSearch(TOOLS).view()).plan
    (answer,) = again.commit(await again.run_pending()).to_anthropic()[-1]["content"]
    assert answer["content"] == [{"type": "tool_reference", "tool_name": "get_weather"}]


@pytest.mark.parametrize("form", FORMS)
async def test_m5_a_call_of_an_unknown_tool_is_answered_with_the_way_to_search(form: Form) -> None:
    name = "get_weather" if form == "openai" else "get_wether"
    searching = "tool_search" if form == "openai_responses" else "search_tools"
    reply = said(form, ("search_tools", {"query": "weather"}), (name, {"city": "Bern"}))
    (issue,) = ToolRound.of(reply, ToolSearch(TOOLS).export(form)).issues
    assert issue.message.startswith(f"Unknown tool: {name}; find tools with {searching}")


class Weather(ToolProvider):
    """A provider whose tools change."""

    def __init__(self) -> None:
        self.text = "Get the weather."
        self.names = ["weather", "storms"]

    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition(name, self.text) for name in self.names]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"ran {call.name}")


@pytest.mark.parametrize("form", FORMS)
async def test_m5_a_tool_that_changes_while_the_model_answers_is_not_run(form: Form) -> None:
    provider = Weather()
    mounted = DynamicToolset(provider, name="weather")
    async with Toolset(mounted).deferred() as tools:
        exported = ToolSearch(tools, found=["weather", "storms"]).export(form)
        provider.text, provider.names = "Change the weather.", ["weather"]
        await mounted.refresh()
        round = ToolRound.of(said(form, ("weather", {}), ("storms", {})), exported)
        assert [issue.reason for issue in round.issues] == ["changed_tool", "changed_tool"]
        assert not any("ran" in text.split() and "not" not in text for text in await ran(round))


async def test_m5_conversations_that_share_an_index_find_their_own_tools_only() -> None:
    shared = SearchIndex()
    one = ToolSearch(Toolset(get_weather).deferred(), index=shared, limit=1)
    other = ToolSearch(Toolset(delete_invoice).deferred(), index=shared, limit=1)
    exported = one.export("openai")
    other.export("openai")
    queries = [("search_tools", {"query": query}) for query in ("delete an invoice", "weather or invoices")]
    texts = await ran(ToolRound.of(said("openai", *queries), exported))
    assert one.found == ("get_weather",)
    assert not any("delete_invoice" in text for text in texts)


async def test_m5_a_search_for_too_many_tools_finds_as_many_as_it_may() -> None:
    reply = said("openai", ("search_tools", {"query": "weather, invoices", "limit": 50}))
    search = ToolSearch(TOOLS, limit=1)
    assert not (round := ToolRound.of(reply, search.export("openai"))).issues
    await ran(round)
    assert len(search.found) == 1
    with pytest.raises(DefinitionError, match="1 to 100 tools with each search, not limit=500"):
        ToolSearch(TOOLS, limit=500)


def test_m5_what_a_client_library_adds_to_a_streamed_reply_is_not_sent_back() -> None:
    streamed = said("openai", ("search_tools", {"query": "weather"}))
    streamed["parsed"] = None
    streamed["tool_calls"][0]["index"] = 0
    streamed["tool_calls"][0]["function"]["parsed_arguments"] = {"query": "weather"}
    search = ToolSearch(TOOLS)
    round = ToolRound.of(streamed, search.export("openai"))
    assert round.plan.turn.message == said("openai", ("search_tools", {"query": "weather"}))

    text = {"type": "output_text", "text": "hm", "annotations": []}
    items = [
        {"type": "message", "role": "assistant", "content": [{**text, "parsed": None}]},
        {**said("openai_responses", ("get_weather", {"city": "B"}))[0], "parsed_arguments": {"city": "B"}},
    ]
    round = ToolRound.of(items, search.export("openai_responses"))
    sent = round.plan.turn.message["output"]
    assert sent[0]["content"] == [text] and "parsed_arguments" not in sent[1]

    blocks = [{"type": "text", "text": "hm", "parsed_output": {}}]
    round = ToolRound.of({"role": "assistant", "content": blocks}, search.export("anthropic"))
    assert round.plan.turn.message["content"] == [{"type": "text", "text": "hm"}]
