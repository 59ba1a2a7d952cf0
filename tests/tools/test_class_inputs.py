"""Declared inputs, functions and methods as members of class toolsets, and as selectors."""

from __future__ import annotations

from typing import Any

import anyio
import mcp
import pytest
from pydantic import BaseModel

from mcp_toolset import HookSet, InputTool, Reject, ToolCall, Toolset, ToolsetServer, tool, tool_input
from mcp_toolset.arguments import describe
from mcp_toolset.errors import DefinitionError, StateError, UnknownToolError
from mcp_toolset.rounds import ToolAvailability, ToolRequirement

pytestmark = pytest.mark.anyio


class Snippets(BaseModel):
    snippets: list[str]


@tool_input(name="web_search", output=Snippets)
class WebSearch(BaseModel):
    """Search the web."""

    query: str


class Plain(BaseModel):
    name: str


def read_file(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


class App(Toolset):
    search = WebSearch
    read = read_file

    def __init__(self, greeting: str = "hello") -> None:
        super().__init__()
        self.greeting = greeting

    @staticmethod
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    @tool
    def greet(self, name: str) -> str:
        """Greet."""
        return f"{self.greeting} {name}"

    @tool(name="part")
    async def leave(self, name: str) -> str:
        """Take leave."""
        return f"{self.greeting} goes {name}"

    def helper(self) -> str:
        return self.greeting


def test_u22_declared_inputs_and_functions_are_members_of_a_class():
    assert App().names() == ["web_search", "read_file", "double", "greet", "part"]
    assert App.search is WebSearch and App.search(query="x").query == "x"
    assert App.read("p") == App().read("p") == "text of p"  # type: ignore[call-arg, arg-type]
    assert App().helper() == "hello"

    class Inner(Toolset):
        @tool_input
        class Find(BaseModel):
            what: str

    assert Inner().names() == ["Find"]


async def test_u69_a_method_with_tool_is_the_tool_of_each_instance():
    one, two = App("hello"), App("bye")
    assert (await one.view().execute("greet", {"name": "you"})).text == "hello you"
    assert (await two.view().execute("part", {"name": "me"})).text == "bye goes me"
    assert one.greet("x") == "hello x" and two.greet("x") == "bye x"
    assert one.greet is one.greet and list(one.greet.input_schema["properties"]) == ["name"]
    assert list(one.view(ToolAvailability.only(App.greet, one.leave))) == ["greet", "part"]
    assert App.greet.id == one.greet.id == f"{__name__}:App.greet"

    class Store:
        @tool
        def find(self, key: str) -> str:
            """Find."""
            return f"{key} in {type(self).__name__}"

    assert (await Toolset(Store().find).view().execute("find", {"key": "k"})).text == "k in Store"
    with pytest.raises(DefinitionError, match="'find' is a method; bind it first: give instance.find"):
        Toolset(Store.find)
    with pytest.raises(StateError, match="method without an instance"):
        await Store.find.execute({"key": "k"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model", Plain, "declare Plain with @tool_input, write model = InputTool.of"),
        ("bare", lambda path: path, "Bad.bare cannot be a tool: .*has no name;"),
        ("static", staticmethod(lambda path: path), "Bad.static cannot be a tool"),
        ("view", read_file, "would take the place of Toolset.view"),
        ("off", WebSearch, "would take the place of Toolset.off"),
    ],
)
def test_u22_what_cannot_be_a_member_is_an_error_that_says_why(name: str, value: Any, says: str):
    with pytest.raises(DefinitionError, match=says):
        type("Bad", (Toolset,), {"__qualname__": "Bad", name: value})


@pytest.mark.needs("model_loop")
def test_u25_a_declared_class_selects_its_tool_wherever_it_is_nested():
    nested = Toolset(App(), name="outer").prefixed("a")
    view = nested.view()
    assert view[WebSearch].name == "a_web_search" and WebSearch in view and Plain not in view
    assert nested.find(read_file).name == "a_read_file"
    assert list(nested.view(ToolAvailability.only(WebSearch, read_file))) == ["a_web_search", "a_read_file"]
    assert "a_web_search" not in nested.off(WebSearch).view()
    assert list(nested.off(WebSearch).view(ToolAvailability.default_plus(WebSearch)))[-1] == "a_web_search"
    assert nested.renamed({WebSearch: "look"}).view()[WebSearch].name == "look"
    assert nested.filtered(include=[WebSearch]).names() == ["a_web_search"]
    assert nested.described({WebSearch: "Look."}).find(WebSearch).definition.description == "Look."
    assert view.describe(WebSearch, "Find.")[WebSearch].definition.description == "Find."
    changed = nested.with_arguments({WebSearch: {"query": describe("What.")}}).find(WebSearch)
    assert changed.definition.input_schema["properties"]["query"]["description"] == "What."
    required = ToolRequirement.specific(WebSearch)
    assert view.export("openai", requirement=required).tool_choice["function"]["name"] == "a_web_search"


def test_u25_a_class_selects_its_tool_with_a_handler_too_and_a_stranger_is_an_error():
    run = InputTool.of(WebSearch).with_handler(lambda given: Snippets(snippets=[given.query]))
    assert Toolset(run).find(WebSearch).origin is run
    with pytest.raises(UnknownToolError, match="web_search"):
        Toolset(read_file).find(WebSearch)
    with pytest.raises(DefinitionError, match="a class that @tool_input has declared; not by"):
        Toolset(run).find(Plain)
    with pytest.raises(DefinitionError, match="has 2 names here"):
        Toolset(WebSearch, Toolset(WebSearch).prefixed("b")).find(WebSearch)


@pytest.mark.needs("model_loop")
async def test_u25_a_declared_class_is_the_selector_of_a_hook():
    from mcp_toolset.rounds import ToolRound

    hooks = HookSet()

    @hooks.execution(WebSearch)
    async def refuse(call: ToolCall, input: WebSearch) -> Reject:
        return Reject(f"not {input.query}")

    @hooks.execution(App.greet)
    async def never(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("never")

    view = App().prefixed("a").view()
    calls = [ToolCall("a_web_search", {"query": "x"}, "1"), ToolCall("a_greet", {"name": "y"}, "2")]
    plan = await ToolRound.from_calls(calls, view).apply(hooks)
    assert [done.decision.reason for done in plan.rejected] == ["not x", "never"]


async def test_u22_a_class_of_declared_inputs_and_methods_is_served():
    with anyio.fail_after(30):
        async with ToolsetServer(App("hi")) as server, mcp.Client(server.lowlevel) as client:
            assert [one.name for one in (await client.list_tools()).tools] == App().names()
            answer = await client.call_tool("greet", {"name": "you"})
            assert [block.text for block in answer.content] == ["hi you"]  # type: ignore[union-attr]
