"""`ToolsetServer`: names that meet, lists that move, resources, calls without a wire."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server

from mcp_toolset import HookSet, RemoteToolset, ToolDefinition, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError, NameConflictError, StateError, UnknownToolError

pytestmark = pytest.mark.anyio


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


def upstream(*names: str) -> Server[Any]:
    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=f"The {name}.", input_schema={"type": "object"})
                for name in names
            ]
        )

    async def on_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} ran")])

    return Server("up", on_list_tools=on_list, on_call_tool=on_call)


async def test_f16_names_that_meet_are_qualified_and_none_vanishes() -> None:
    tools = Toolset(
        echo, RemoteToolset(upstream("echo", "own"), name="a"), RemoteToolset(upstream("echo"), name="b")
    )
    async with ToolsetServer(tools) as server:
        names = [binding.name for binding in server.bindings()]
        again = [binding.name for binding in server.bindings()]
        assert names == again and names[0] == "echo" and "own" in names
        assert len(set(names)) == 4
        assert [name.rsplit("_", 1)[0] for name in names if name not in ("echo", "own")] == [
            "a_echo",
            "b_echo",
        ]
        for name in names[1:]:
            assert (await server.call_tool(name)).text.endswith("ran")


async def test_f16_prefixes_whose_parts_meet_do_not() -> None:
    tools = Toolset(
        RemoteToolset(upstream("b_c"), name="one").prefixed("a"),
        RemoteToolset(upstream("c"), name="two").prefixed("a_b"),
    )
    async with ToolsetServer(tools) as server:
        names = {binding.name for binding in server.bindings()}
        results = {(await server.call_tool(name)).text for name in names}
    assert len(names) == 2 and results == {"b_c ran", "c ran"}


def test_l28_two_local_tools_of_one_name_are_an_error_that_names_both() -> None:
    with pytest.raises(NameConflictError, match=r"'echo'.*echo \(.*\.prefixed\(\)"):
        Toolset(echo, Toolset(echo))


async def test_a_tool_named_like_a_fixed_one_is_refused_beside_a_deferred_catalog() -> None:
    def search_tools() -> str:
        """Mine."""
        return ""

    tools = Toolset(search_tools, RemoteToolset(upstream("x"), name="a").deferred())
    with pytest.raises(NameConflictError, match="search_tools"):
        async with ToolsetServer(tools):
            raise AssertionError("opened")


async def test_an_error_in_the_block_leaves_it_as_it_is() -> None:
    tools = Toolset(RemoteToolset(upstream("x"), name="a"))
    with pytest.raises(LookupError, match="mine"):
        async with ToolsetServer(tools):
            raise LookupError("mine")


async def test_a_server_opens_once_and_closes_what_it_opened() -> None:
    remote = RemoteToolset(upstream("x"), name="a")
    server = ToolsetServer(Toolset(remote))
    async with server:
        assert remote.status.state == "ready"
        with pytest.raises(StateError, match="already open"):
            await server.__aenter__()
    assert remote.status.state == "closed"
    async with server:
        assert (await server.call_tool("x")).text == "x ran"


async def test_a_client_in_process_opens_the_server_by_itself() -> None:
    server = ToolsetServer(Toolset(RemoteToolset(upstream("x"), name="a")))
    with anyio.fail_after(40):
        async with Client(server.lowlevel) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["x"]


async def test_f41_a_description_hook_that_raises_hides_its_tool_alone() -> None:
    hooks = HookSet()

    @hooks.description("hidden")
    async def broken(definition: ToolDefinition) -> str:
        raise RuntimeError("no text today")

    tools = Toolset(echo, RemoteToolset(upstream("hidden", "shown"), name="a"))
    async with ToolsetServer(tools, hooks=hooks) as server:
        assert [tool["name"] for tool in server.tools()] == ["echo", "shown"]
        with pytest.raises(UnknownToolError):
            await server.call_tool("hidden")


async def test_l10_a_tool_that_is_off_is_neither_listed_nor_callable() -> None:
    async with ToolsetServer(Toolset(echo, RemoteToolset(upstream("x", "y"), name="a").off("x"))) as server:
        assert [tool["name"] for tool in server.tools()] == ["echo", "y"]
        with pytest.raises(UnknownToolError):
            await server.call_tool("x")


async def test_x1_the_host_calls_deferred_tools_and_nobody_else_does() -> None:
    async with ToolsetServer(Toolset(RemoteToolset(upstream("x"), name="a").deferred())) as server:
        with pytest.raises(UnknownToolError):
            await server.call_tool("x")
        assert (await server.call_as_host("x")).text == "x ran"


async def test_h22_the_preview_stands_in_the_instructions_and_is_short() -> None:
    many = [f"tool_{number}" for number in range(500)]
    tools = Toolset(RemoteToolset(upstream(*many), name="big").deferred())
    async with ToolsetServer(tools, instructions="Be brief.") as server, Client(server.lowlevel) as client:
        assert client.instructions is not None
        assert client.instructions.startswith("Be brief.\n\n500 tools can be found by search. big (500)")
        assert len(client.instructions) < 1300


class Shelf:
    """Resources whose list can grow."""

    def __init__(self) -> None:
        self.names = ["one"]
        self.callbacks: list[Callable[[], None]] = []

    async def list_resources(self) -> Sequence[types.Resource]:
        return [types.Resource(uri=f"shelf:///{name}", name=name) for name in self.names]

    async def list_resource_templates(self) -> Sequence[types.ResourceTemplate]:
        return [types.ResourceTemplate(uri_template="shelf:///{name}", name="any")]

    async def read_resource(self, uri: str) -> Sequence[types.TextResourceContents]:
        name = uri.removeprefix("shelf:///")
        if name not in self.names:
            raise LookupError(f"no {name} on the shelf")
        return [types.TextResourceContents(uri=uri, text=name.upper())]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_resources_are_listed_read_and_announced(mode: str) -> None:
    shelf, heard = Shelf(), anyio.Event()

    async def listen(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/list_changed":
            heard.set()

    server = ToolsetServer(Toolset(echo), resources=shelf)
    with anyio.fail_after(40):
        async with server, Client(server.lowlevel, mode=mode, message_handler=listen, cache=None) as client:
            assert [found.name for found in (await client.list_resources()).resources] == ["one"]
            assert (await client.list_resource_templates()).resource_templates[0].name == "any"
            (contents,) = (await client.read_resource("shelf:///one")).contents
            assert isinstance(contents, types.TextResourceContents) and contents.text == "ONE"
            with pytest.raises(MCPError, match="no two on the shelf"):
                await client.read_resource("shelf:///two")
            shelf.names.append("two")
            if mode == "legacy":
                await anyio.to_thread.run_sync(shelf.callbacks[0])
                await heard.wait()
            else:
                async with client.listen(resources_list_changed=True) as events:
                    shelf.callbacks[0]()
                    await anext(events)
            assert len((await client.list_resources()).resources) == 2
    assert not shelf.callbacks


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("ftp://host/mcp", "no web address; write it as https://host/path"),
        ("mcp-server-git", r"no web address; a command is given as a list"),
        ([], "the argument list is empty"),
        (42, "int is no target"),
    ],
)
def test_a_target_of_no_known_kind_is_said_with_the_mend(target: Any, cause: str) -> None:
    with pytest.raises(DefinitionError, match=f"mount 'm': .*{cause}"):
        RemoteToolset(target, name="m")


@pytest.mark.needs("statistics")
def test_a_derived_server_is_told_everything_that_its_origin_was() -> None:
    origin = ToolsetServer(Toolset(), instructions="i", scorer=None, list_timeout=2, keep=False, stats=False)
    shared = {"events": origin.events, "grants": origin.grants}
    assert origin.derived(name="b")._given == {**origin._given, **shared, "name": "b"}
    in_rules = {"hooks", "middleware", "tool_middleware"}
    told = {*origin._given, "others"}
    assert set(inspect.signature(ToolsetServer.__init__).parameters) <= {"self", "toolset"} | in_rules | told


async def test_h19_a_derived_server_searches_as_its_origin_does() -> None:
    async def refund(order: str) -> str:
        """Give money back to a buyer."""
        return order

    found: list[list[str]] = []
    for origin in (
        ToolsetServer(Toolset(refund).deferred()),
        ToolsetServer(Toolset(refund).deferred(), scorer=None),
    ):
        async with origin.derived(name="again") as server:
            found.append([hit.name for hit in server.search("cashback")])
    assert found == [["refund"], []]
