"""What a turn makes of the tools of a provider, and how a provider is listed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from mcp_toolset import (
    DynamicToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError

pytestmark = pytest.mark.anyio


@tool
def look(what: str = "") -> str:
    """Look."""
    return what


@dataclass
class Turn:
    user: str
    admin: bool = False


def definition(name: str, **properties: Any) -> ToolDefinition:
    return ToolDefinition(name, input_schema={"type": "object", "properties": properties})


class Shelf(ToolProvider):
    """Definitions that change from outside."""

    def __init__(self, *definitions: ToolDefinition) -> None:
        self.definitions: Any = definitions
        self.fault: Exception | None = None
        self.listed = 0
        self.calls: list[ToolCall] = []
        self.hangs = False

    async def list_definitions(self) -> Iterable[ToolDefinition]:
        self.listed += 1
        if self.hangs:
            await anyio.sleep_forever()
        if self.fault:
            raise self.fault
        return self.definitions

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.calls.append(call)
        return ToolResult.of_structured({"got": call.arguments})


async def test_h1_a_provider_is_listed_when_it_is_opened_and_when_it_has_changed():
    shelf = Shelf(definition("a"))
    tools = DynamicToolset(shelf, name="shelf")
    assert tools.status.state == "closed"
    outer = Toolset(tools.prefixed("s"), look)
    assert outer.names() == ["look"] and shelf.listed == 0
    with anyio.fail_after(30):
        async with outer:
            while tools.status.state != "ready":
                await anyio.lowlevel.checkpoint()
            assert outer.names() == ["s_a", "look"] and tools.status.tools == 1
            told = anyio.Event()
            stop = tools.on_change(told.set)
            shelf.definitions = [definition("b"), definition("c")]
            tools.changed()
            await told.wait()
            assert outer.names() == ["s_b", "s_c", "look"]
            stop()
        assert tools.status.state == "closed"


async def test_h1_a_provider_is_listed_again_after_some_time():
    shelf = Shelf(definition("a"))
    tools = DynamicToolset(shelf, name="shelf", refresh=0.001)
    with anyio.fail_after(30):
        async with tools:
            told = anyio.Event()
            tools.on_change(told.set)
            shelf.definitions = [definition("b")]
            await told.wait()
            assert tools.names() == ["b"]


async def test_h1_a_server_follows_a_provider():
    shelf = Shelf(definition("a"))
    tools = DynamicToolset(shelf, name="shelf")
    with anyio.fail_after(30):
        async with ToolsetServer(tools) as server:
            assert [one["name"] for one in server.tools()] == ["a"]
            assert (await server.call_tool("a", {"x": 1})).structured == {"got": {"x": 1}}
            shelf.definitions = [definition("b")]
            tools.changed()
            while [one["name"] for one in server.tools()] != ["b"]:
                await anyio.lowlevel.checkpoint()
            assert server.statuses()["shelf"].tools == 1


async def test_f7_a_provider_that_fails_keeps_its_tools_and_says_why():
    shelf = Shelf(definition("a"))
    tools = DynamicToolset(shelf, name="shelf")
    assert (await tools.refresh()).state == "ready"
    shelf.fault = LookupError("no shelf")
    status = await tools.refresh()
    assert (status.state, status.tools, tools.names()) == ("offline", 1, ["a"])
    assert status.reason == "it could not list its tools: no shelf"
    shelf.fault = None
    assert (await tools.refresh()).state == "ready"


async def test_f4_a_provider_that_hangs_is_offline_after_its_deadline():
    shelf = Shelf(definition("a"))
    tools = DynamicToolset(shelf, name="shelf", timeout=0.01)
    await tools.refresh()
    shelf.hangs = True
    with anyio.fail_after(30):
        assert (await tools.refresh()).reason == "it did not list its tools in 0.01 s"
        with pytest.raises(CallError, match="shelf: a could not be looked up in 0.01 s"):
            await tools.execute("a")


async def test_f17_a_definition_that_cannot_be_used_is_set_aside_alone():
    broken = ToolDefinition("broken", input_schema={"type": "nonsense"})
    shelf = Shelf(broken, definition("a"), definition("a"))
    tools = DynamicToolset(shelf, name="shelf")
    set_aside = dict((await tools.refresh()).set_aside)
    assert tools.names() == ["a"]
    assert set(set_aside) == {"broken", "a"}
    assert "listed twice" in set_aside["a"] and "inputSchema" in set_aside["broken"]


async def test_h20_an_unchanged_definition_keeps_its_compiled_schemas():
    tools = DynamicToolset(Shelf(definition("a")), name="shelf")
    await tools.refresh()
    before = tools.find("a").arguments
    await tools.refresh()
    assert tools.find("a").arguments is before


async def test_h1_a_call_is_held_against_the_contract_that_holds_now():
    shelf = Shelf(definition("a", n={"type": "integer"}))
    tools = DynamicToolset(shelf, name="shelf").prefixed("s")
    await tools.sources()[0].refresh()  # type: ignore[attr-defined]
    await tools.execute("s_a", {"n": 1})
    assert [(call.name, call.arguments) for call in shelf.calls] == [("a", {"n": 1})]
    shelf.definitions = [definition("a", n={"type": "string"})]
    with pytest.raises(InvalidArgumentsError, match="s_a has changed, and the arguments do not fit: n"):
        await tools.execute("s_a", {"n": 1})
    shelf.definitions = []
    with pytest.raises(CallError, match="shelf: s_a is not offered any more"):
        await tools.execute("s_a", {"n": 1})
    assert len(shelf.calls) == 1


async def test_h6_a_provider_prepares_its_calls_with_the_turn():
    class Personal(Shelf):
        def prepare(self, call: ToolCall, turn: Turn) -> Mapping[str, Any]:
            return {"user": turn.user}

    tools = DynamicToolset(Personal(definition("a", user={"enum": ["ann"]})), name="shelf")
    await tools.refresh()
    done = await tools.view(turn=Turn("ann")).execute("a", {"user": "eve"})
    assert done.structured == {"got": {"user": "ann"}}
    with pytest.raises(InvalidArgumentsError):
        await tools.view(turn=Turn("bob")).execute("a")
    with pytest.raises(DefinitionError, match="needs a turn of type Turn"):
        tools.view()


@pytest.mark.parametrize("wrong", [{"name": ""}, {"refresh": 0}, {"timeout": -1}])
def test_h1_a_provider_that_cannot_be_mounted_is_refused(wrong: dict[str, Any]):
    with pytest.raises(DefinitionError):
        DynamicToolset(Shelf(), **{"name": "shelf", **wrong})
