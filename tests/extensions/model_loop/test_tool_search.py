"""Our search in loops of one's own: with client libraries of providers, before a scripted provider."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolUnionParam
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.tool_param import ToolParam
from pydantic import TypeAdapter
from tests.extensions.model_loop.endpoint import Calls, scripted

from mcp_toolset import Toolset, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import ToolRound, ToolSearch
from mcp_toolset.search import SearchIndex

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather forecast of a city."""
    return f"sunny in {city}"


@tool
def delete_invoice(id: str) -> str:
    """Delete an invoice."""
    return f"deleted {id}"


TOOLS: Toolset[Any] = Toolset(add, Toolset(get_weather, delete_invoice).deferred())
FORECAST = {"city": "Bern"}


async def test_m5_anthropic_loads_what_our_search_refers_to() -> None:
    search = ToolSearch(TOOLS)
    script: list[Calls | str] = [
        [("c1", "search_tools", {"query": "weather forecast", "limit": 1})],
        [("c2", "get_weather", FORECAST)],
        "Sunny.",
    ]
    messages: list[Any] = [{"role": "user", "content": "How is it in Bern?"}]
    with scripted(script) as endpoint:
        async with AsyncAnthropic(api_key="x", base_url=endpoint.url) as client:
            while True:
                exported = search.export("anthropic")
                TypeAdapter(list[ToolUnionParam]).validate_python(exported.tools, strict=True)
                reply = await client.messages.create(
                    model="m", max_tokens=9, messages=messages, **exported.request()
                )
                if reply.stop_reason != "tool_use":
                    break
                messages += await answered(reply, exported, "to_anthropic")
                TypeAdapter(list[MessageParam]).validate_python(messages, strict=True)
    offered = [[one["name"] for one in asked["tools"]] for asked in endpoint.asked]
    assert offered == [["search_tools", "add", "get_weather", "delete_invoice"]] * 3, "the cache stays valid"
    assert [one.get("defer_loading", False) for one in endpoint.asked[0]["tools"]] == [False] * 2 + [True] * 2
    results = [
        message["content"][0] for message in endpoint.asked[2]["messages"] if message["role"] == "user"
    ][1:]
    assert results[0]["content"] == [{"type": "tool_reference", "tool_name": "get_weather"}]
    assert results[1]["content"] == [{"type": "text", "text": "sunny in Bern"}]


async def test_m5_openai_responses_get_definitions_in_the_answer_to_our_search() -> None:
    search = ToolSearch(TOOLS)
    script: list[Calls | str] = [
        [("c1", "tool_search", {"query": "weather forecast", "limit": 1})],
        [("c2", "get_weather", FORECAST)],
        "Sunny.",
    ]
    items: list[Any] = [{"role": "user", "content": "How is it in Bern?"}]
    with scripted(script) as endpoint:
        async with AsyncOpenAI(api_key="x", base_url=f"{endpoint.url}/v1") as client:
            for _ in range(2):
                exported = search.export("openai_responses")
                TypeAdapter(list[ToolParam]).validate_python(exported.tools, strict=True)
                reply = await client.responses.create(model="m", input=items, **exported.request())
                items += await answered(reply, exported, "to_openai_responses")
                TypeAdapter(list[ResponseInputItemParam]).validate_python(items)
    (searching, plain) = endpoint.asked[0]["tools"]
    assert (searching["type"], searching["execution"], plain["name"]) == ("tool_search", "client", "add")
    assert "query" in searching["parameters"]["properties"]
    (found,) = [one for one in items if one.get("type") == "tool_search_output"]
    assert (found["call_id"], found["execution"], found["status"]) == ("c1", "client", "completed")
    assert [(one["name"], one["defer_loading"]) for one in found["tools"]] == [("get_weather", True)]
    assert items[-1] == {"type": "function_call_output", "call_id": "c2", "output": "sunny in Bern"}


async def test_m5_chat_completions_list_what_was_found_from_the_next_request_on() -> None:
    search = ToolSearch(TOOLS)
    script: list[Calls | str] = [
        [("c1", "search_tools", {"query": "weather forecast", "limit": 1})],
        [("c2", "get_weather", FORECAST)],
    ]
    messages: list[Any] = [{"role": "user", "content": "How is it in Bern?"}]
    with scripted(script) as endpoint:
        async with AsyncOpenAI(api_key="x", base_url=f"{endpoint.url}/v1") as client:
            for _ in range(2):
                exported = search.export("openai")
                reply = await client.chat.completions.create(
                    model="m", messages=messages, **exported.request()
                )
                messages += await answered(reply.choices[0].message, exported, "to_openai")
                TypeAdapter(list[ChatCompletionMessageParam]).validate_python(messages)
    offered = [[one["function"]["name"] for one in asked["tools"]] for asked in endpoint.asked]
    assert offered == [["search_tools", "add"], ["search_tools", "add", "get_weather"]]
    assert "get_weather(city: string)" in messages[2]["content"] or "get_weather(" in messages[2]["content"]
    assert messages[-1]["content"] == "sunny in Bern"


async def answered(reply: Any, exported: Any, form: str) -> list[Any]:
    round = ToolRound.of(reply, exported)
    assert not round.issues
    plan = await round.apply()
    commit = plan.commit(await plan.run_pending())
    return getattr(commit, form)()


async def test_m5_a_tool_that_was_not_found_cannot_be_called_in_chat_completions() -> None:
    search = ToolSearch(TOOLS)
    exported = search.export("openai")
    said = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "delete_invoice", "arguments": '{"id": "1"}'},
            }
        ],
    }
    (issue,) = ToolRound.of(said, exported).issues
    assert "delete_invoice" in issue.message and issue.reason == "unknown_tool"


async def test_m5_gemini_gets_declarations_of_what_was_found() -> None:
    search = ToolSearch(TOOLS)
    await search.view().execute("search_tools", {"query": "invoice", "limit": 1})
    (declared,) = search.export("gemini").tools
    assert [one["name"] for one in declared["functionDeclarations"]] == [
        "search_tools",
        "add",
        "delete_invoice",
    ]


@pytest.mark.parametrize("provider", ["anthropic", "openai_responses", "openai", "gemini"])
def test_m5_without_deferred_tools_there_is_no_search(provider: Any) -> None:
    exported = ToolSearch(Toolset(add)).export(provider)
    assert list(exported.names) == ["add"]
    assert exported.tools == Toolset(add).view().export(provider).tools


async def test_m5_a_search_that_finds_nothing_says_so_in_every_form() -> None:
    search = ToolSearch(TOOLS)
    for provider, said in (
        (
            "anthropic",
            message([{"type": "tool_use", "id": "c1", "name": "search_tools", "input": {"query": "zzqx"}}]),
        ),
        ("openai_responses", [client_search({"query": "zzqx"})]),
    ):
        exported = search.export(provider)  # pyright: ignore[reportArgumentType]
        form = "to_anthropic" if provider == "anthropic" else "to_openai_responses"
        last = (await answered(said, exported, form))[-1]
        if provider == "anthropic":
            assert "Try other words" in last["content"][0]["content"][0]["text"]
        else:
            assert last["tools"] == []


def message(content: list[Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def client_search(arguments: Any) -> dict[str, Any]:
    return {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": arguments}


async def test_m5_arguments_of_a_search_may_be_json_in_a_text() -> None:
    exported = ToolSearch(TOOLS).export("openai_responses")
    last = (await answered([client_search('{"query": "weather"}')], exported, "to_openai_responses"))[-1]
    assert [one["name"] for one in last["tools"]][0] == "get_weather"


def test_m5_a_search_that_the_provider_ran_is_not_answered() -> None:
    exported = TOOLS.view(deferred=True).export("openai_responses")
    ran = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}, "id": "s"}
    assert list(ToolRound.of([ran], exported).calls) == []


async def test_m5_conversations_share_an_index_and_not_what_they_found() -> None:
    shared = SearchIndex()
    one, other = ToolSearch(TOOLS, index=shared), ToolSearch(TOOLS, index=shared)
    for search in (one, other):
        search.export("openai")
    assert len(shared) == 2
    await one.view().execute("search_tools", {"query": "weather", "limit": 1})
    assert (one.found, other.found) == (("get_weather",), ())


async def test_m5_a_toolset_that_changes_is_searched_as_it_is_now() -> None:
    class Changing(Toolset[Any]):
        shown = True

    tools = Changing(add, Toolset(get_weather, delete_invoice).deferred())
    search = ToolSearch(tools.filtered(lambda one: tools.shown or one.name != "get_weather"))
    await search.view().execute("search_tools", {"query": "weather"})
    assert "get_weather" in search.found
    tools.shown = False
    assert "get_weather" not in search.export("openai").names.values()
    await search.view().execute("search_tools", {"query": "weather"})


def test_m5_a_renamed_tool_is_referred_to_by_the_name_in_the_request() -> None:
    @tool(name="odd.name")
    def odd(x: int) -> int:
        """Count odd things."""
        return x

    search = ToolSearch(Toolset(add, Toolset(odd).deferred()))
    exported = search.export("anthropic")
    (name,) = [name for name, public in exported.names.items() if public == "odd.name"]
    assert name != "odd.name" and exported.decode(name) == "odd.name"


def test_m5_wrong_limits_and_providers_are_refused() -> None:
    with pytest.raises(DefinitionError, match="limit=0"):
        ToolSearch(TOOLS, limit=0)
    with pytest.raises(DefinitionError, match="there is no provider 'cohere'; use one of openai"):
        ToolSearch(TOOLS).export("cohere")  # pyright: ignore[reportArgumentType]
