"""Common tasks that are one line each."""

from __future__ import annotations

from typing import Any

import anyio
import mcp
import openai.types.chat
import pytest
from pydantic import TypeAdapter

from mcp_toolset import HookSet, Reject, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UnknownToolError

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@pytest.mark.needs("model_loop")
def test_u69_a_tool_by_itself_is_exported_for_each_provider():
    assert add.to_openai()["function"]["name"] == "add"
    TypeAdapter(openai.types.chat.ChatCompletionToolParam).validate_python(add.to_openai())
    assert add.to_openai_responses()["name"] == add.to_anthropic()["name"] == "add"
    assert "add" in str(add.to_gemini())


class Data(Toolset):
    @tool
    @staticmethod
    def get_user(id: int) -> str:
        """Get a user by the number."""
        return f"user {id}"

    @tool
    @staticmethod
    def drop_user(id: int) -> str:
        """Drop a user."""
        return f"dropped {id}"


class App(Toolset):
    data = Data().prefixed("data")
    add = add


@pytest.mark.needs("model_loop")
async def test_u69_hooks_of_a_nested_toolset_are_registered_by_the_names_in_it():
    from mcp_toolset.rounds import ToolRound

    hooks, asked = HookSet(), list[str]()

    @hooks.of(App.data).execution("data_drop_user")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("never")

    @hooks.of(Data()).result()
    async def unrelated(call: ToolCall, result: Any) -> None:
        raise AssertionError("another toolset's")

    @hooks.of(App.data).result()
    async def see(call: ToolCall, result: Any) -> None:
        asked.append(call.name)

    with pytest.raises(UnknownToolError, match="did you mean"):
        hooks.of(App.data).execution("get_usr")
    view = App().prefixed("a").view()
    calls = [
        ToolCall("a_data_get_user", {"id": 1}, "1"),
        ToolCall("a_data_drop_user", {"id": 2}, "2"),
        ToolCall("a_add", {"a": 2}, "3"),
    ]
    plan = await ToolRound.from_calls(calls, view).apply(hooks)
    assert [done.call.name for done in plan.rejected] == ["a_data_drop_user"]
    await plan.run_pending()
    assert sorted(asked) == ["a_data_drop_user", "a_data_get_user"]


async def test_u69_a_compact_listing_is_one_call_and_its_stubs_run_and_explain_themselves():
    compact = App().compact()
    view = compact.view()
    assert list(view) == ["data_get_user", "data_drop_user", "add", "tool_help"]
    assert view["add"].to_wire()["inputSchema"] == {"type": "object", "properties": {}}
    assert view["add"].definition.description == "Add. Arguments: a: integer, b?: integer"
    told = (await view.execute("tool_help", {"names": ["add", "none"]})).text
    assert '"required": ["a"]' in told and "Unknown tool: none" in told
    with anyio.fail_after(30):
        async with ToolsetServer(compact) as server, mcp.Client(server.lowlevel) as client:
            assert [one.name for one in (await client.list_tools()).tools] == list(view)
            answer = await client.call_tool("add", {"a": 2})
            assert (answer.is_error, answer.content[0].text) == (False, "3")  # type: ignore[union-attr]
            refused = await client.call_tool("add", {"a": "x"})
            assert refused.is_error
