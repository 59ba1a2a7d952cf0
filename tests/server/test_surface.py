"""What a model reads of a server whose tools are behind search: hits, lists, held and unknown tools."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.server.test_granting import SESSION, Upstream, handle_for

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio


@tool
def clock(zone: str) -> str:
    """Tell the time of a zone."""
    return f"noon in {zone}"


async def found(server: ToolsetServer, context: ToolContext = SESSION, /, **asked: Any) -> dict[str, Any]:
    return (await server.call_tool("search_tools", asked, context=context)).structured


def next_of(text: str) -> tuple[str, dict[str, Any]]:
    """The literal next call at the end of a text."""
    name, _, arguments = text.split("\n")[-1].removeprefix("Next: ").partition(" ")
    return name, json.loads(arguments)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u53_every_unknown_name_says_how_to_search(mode: Any) -> None:
    async with (
        ToolsetServer(Upstream("quux").mounted()) as server,
        Client(server.lowlevel, mode=mode) as client,
    ):
        said: list[str] = []
        for name in ("quux", "erp_quux", "never", "there is `none`"):
            with pytest.raises(MCPError) as unknown:
                await client.call_tool(name, {"n": 1})
            assert str(unknown.value).startswith(f"Unknown tool: {name}; find tools with search_tools\n")
            assert next_of(str(unknown.value)) == ("search_tools", {"query": name})
            said.append(str(unknown.value).replace(json.dumps(name)[1:-1], "?").replace(name, "?"))
        assert len(set(said)) == 1


async def test_u53_a_server_without_deferred_tools_says_nothing_of_a_search() -> None:
    async with ToolsetServer(Toolset(clock)) as server:
        with pytest.raises(UnknownToolError, match="^Unknown tool: x$"):
            await server.call_tool("x")


async def test_u54_an_unknown_server_is_answered_with_those_that_there_are() -> None:
    tools = Toolset(Upstream("x").mounted("git"), Upstream("y").mounted("time"))
    async with ToolsetServer(tools) as server:
        note = (await found(server, query="a tool", server="gitt"))["note"]
        assert "did you mean git? Servers: git, time" in note
        assert next_of(note) == ("search_tools", {"query": "a tool", "server": "git"})
        (hit,) = (await found(server, query="x", server=" `Git` "))["hits"]
        assert hit["id"] == "git_x"


@pytest.mark.parametrize("query", ["", "*", "list all", "list all tools", "show me all the tools of erp"])
async def test_u55_a_query_for_everything_lists_a_server_by_pages(query: str) -> None:
    names = [f"tool_{number:02}" for number in range(25)]
    tools = Toolset(Upstream(*names).mounted(), Upstream("other").mounted("two"))
    async with ToolsetServer(tools) as server:
        seen: list[str] = []
        call = ("search_tools", {"query": query, "server": "erp"})
        for _ in range(3):
            page = (await server.call_tool(*call, context=SESSION)).structured
            seen += [hit["id"] for hit in page["hits"]]
            if "\n" in page["note"]:
                call = next_of(page["note"])
        assert seen == [f"erp_{name}" for name in names]
        assert page["note"] == "21 to 25 of 25 tools"
        overview = (await found(server, query=query if query in ("", "*") else ""))["note"]
        assert "erp, two" in overview and next_of(overview)[1]["server"] == "erp"


async def test_u55_a_tool_with_such_a_name_is_still_found() -> None:
    async with ToolsetServer(Upstream("list_all", "list_tools").mounted()) as server:
        assert [hit["id"] for hit in (await found(server, query="list_all"))["hits"]][0] == "erp_list_all"


async def test_u56_a_held_tool_says_so_at_search_resolve_and_call_and_to_whom_it_was_granted() -> None:
    up = Upstream("read", "send")
    mount = RemoteToolset(up.server, name="erp")
    async with ToolsetServer(mount.deferred()) as server:
        handle = await handle_for(server, SESSION, "erp_read")
        schema = {"type": "object", "properties": {"n": {"type": "integer"}, "force": {"type": "boolean"}}}
        up.tools["read"] = up.tools["read"].model_copy(update={"input_schema": schema})
        with anyio.fail_after(30):
            mount.connection.lose()
            while not server.statuses()["erp"].changes:
                await server.settled()
                await anyio.lowlevel.checkpoint()
            await server.settled()
        hit = next(one for one in (await found(server, query="read"))["hits"] if one["id"] == "erp_read")
        answer = await server.call_tool("resolve_tools", {"ids": ["erp_read"]}, context=SESSION)
        told = [hit["reason"], answer.structured["tools"][0]["reason"]]
        for reference in (handle, "erp_read"):
            refused = await server.call_tool("call_tool", {"grant": reference}, context=SESSION)
            assert refused.is_error
            assert next_of(refused.text)[0] == "search_tools"
            told.append(refused.text)
        for text in told:
            assert "held since 20" in text and "it takes a new parameter `force`" in text
            assert "a person must accept it" in text and "resolve it again" not in text
        assert up.reached == []


async def test_u57_a_live_grant_is_given_again_to_its_owner_and_to_nobody_else() -> None:
    up = Upstream("x")
    async with ToolsetServer(up.mounted()) as server:
        first = await handle_for(server, SESSION)
        assert await handle_for(server, SESSION) == first == await handle_for(server, SESSION, "erp_x")
        (resolved,) = (await found(server, query="x", resolve=1))["resolved"]
        assert resolved["grant"] == first
        nobody = ToolContext()
        assert len({first, *[await handle_for(server, nobody) for _ in range(2)]}) == 3
        server.grants.revoke_all()
        assert await handle_for(server, SESSION) != first


async def test_u57_a_resolved_definition_has_what_a_call_needs() -> None:
    up = Upstream("x", hints={"readOnlyHint": True, "title": "Ex"})
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "XArguments",
        "type": "object",
        "properties": {"page_size": {"title": "Page Size", "type": "integer"}, "title": {"type": "string"}},
        "required": [],
    }
    changed = {"input_schema": schema, "output_schema": output, "title": "Ex"}
    up.tools["x"] = up.tools["x"].model_copy(update=changed)
    async with ToolsetServer(up.mounted()) as server:
        answer = await server.call_tool("resolve_tools", {"ids": ["x"]}, context=SESSION)
    (resolved,) = answer.structured["tools"]
    assert resolved["definition"] == {
        "name": "x",
        "description": "The x.",
        "inputSchema": {
            "type": "object",
            "properties": {"page_size": {"type": "integer"}, "title": {"type": "string"}},
        },
        "annotations": {"readOnlyHint": True},
    }
    assert json.loads(answer.text) == answer.structured


async def test_m4_a_search_finds_listed_tools_and_says_that_they_are_called_by_name() -> None:
    up = Upstream("invoice")
    async with ToolsetServer(Toolset(up.mounted(), clock)) as server:
        (hit,) = (await found(server, query="the time of a zone", resolve=1))["hits"]
        assert (hit["id"], hit["state"], hit["reason"]) == ("clock", "listed", "call it by its name")
        assert [one.name for one in server.search("the time of a zone")] == []
        answer = await server.call_tool("resolve_tools", {"ids": ["clock"]}, context=SESSION)
        (resolved,) = answer.structured["tools"]
        refused = await server.call_tool("call_tool", {"grant": "`clock`"}, context=SESSION)
        for text in (resolved["reason"], refused.text):
            assert "clock is listed and needs no grant" in text
            assert next_of(text) == ("clock", {"zone": "<string>"})
        assert resolved["status"] == "not_available" and refused.is_error


async def test_m4_a_listed_tool_that_a_caller_may_not_see_is_not_found() -> None:
    policy = Policy(deny=["clock"])
    async with ToolsetServer(Toolset(Upstream("x").mounted(), clock), policy=policy) as server:
        assert "clock" not in str(await found(server, query="clock"))
        assert "clock" not in str(await found(server, query="", server="this server"))
        for name, asked in (("resolve_tools", {"ids": ["clock"]}), ("call_tool", {"grant": "clock"})):
            hidden = (await server.call_tool(name, asked, context=SESSION)).text
            other = json.loads(json.dumps(asked).replace("clock", "never"))
            unknown = (await server.call_tool(name, other, context=SESSION)).text
            assert hidden.replace("clock", "never") == unknown
