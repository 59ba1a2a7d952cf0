"""Stable ids: one tool for each, and a provider's own."""

from __future__ import annotations

import pytest

from mcp_toolset import (
    DynamicToolset,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    tool,
)
from mcp_toolset.errors import NameConflictError

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools")]


@tool(id="one")
def first() -> str:
    """Be first."""
    return "1"


@tool(id="one")
def second() -> str:
    """Be second."""
    return "2"


def made(text: str) -> Toolset:
    @tool
    def say() -> str:
        """Say."""
        return text

    return Toolset(say).prefixed(text)


def test_u33_two_tools_of_one_id_in_a_view_are_an_error_with_both_places():
    with pytest.raises(NameConflictError, match=r"the id 'one': .*first.* and .*second.*@tool\(id=…\)"):
        Toolset(first, second).view()
    assert list(Toolset(Toolset(first).prefixed("a"), Toolset(first).prefixed("b")).view()) == [
        "a_first",
        "b_first",
    ]
    assert list(Toolset(made("a"), made("b")).view()) == ["a_say", "b_say"]
    plain = Tool.from_schema("first", {}, id="one")
    with pytest.raises(NameConflictError, match="the id 'one'"):
        Toolset(first, Toolset(plain).prefixed("x")).view()


class Numbered(ToolProvider):
    def __init__(self, *names: str) -> None:
        self.names = names

    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition(name) for name in self.names]

    def stable_id(self, definition: ToolDefinition) -> str:
        return "" if definition.name == "plain" else f"crm-{definition.name[-1]}"

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(call.name)


async def test_u33_a_provider_names_its_own_ids_which_stay_when_a_name_changes():
    provider = Numbered("ask_1", "tell_2", "plain")
    tools = DynamicToolset(provider, name="crm")
    await tools.refresh()
    assert {one.tool_id: one.name for one in tools.bindings()} == {
        "crm-1": "ask_1",
        "crm-2": "tell_2",
        "crm:plain": "plain",
    }
    provider.names = ("request_1", "tell_2", "say_2")
    status = await tools.refresh()
    assert {one.tool_id: one.name for one in tools.bindings()} == {"crm-1": "request_1", "crm-2": "tell_2"}
    assert status.set_aside == (("say_2", "it has the id 'crm-2' of 'tell_2'; give each its own"),)
