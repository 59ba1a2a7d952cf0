"""What several mounted servers and the application offer beside tools, as one server (P4, P6)."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.support.asking import text_of

from mcp_toolset import PinPolicy, Prompts, RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.server.offering import PAGE

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


def shelf(name: str, *uris: str, broken: bool = False, many: int = 0) -> Server[Any]:
    """A server with a text at each URI, a prompt `plan` and a tool that links to its first text."""

    async def resources(ctx: Any, params: Any) -> Any:
        listed = [{"uri": uri, "name": uri} for uri in [*uris, *(f"many://{n}" for n in range(many))]]
        return {"resources": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri not in uris:
            raise MCPError(types.INVALID_PARAMS, "no such text", {"uri": params.uri})
        text = types.TextResourceContents(uri=params.uri, text=f"{name} has {params.uri}")
        return types.ReadResourceResult(contents=[text])

    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="plan")])

    async def prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        content = types.ResourceLink(type="resource_link", name="first", uri=uris[0])
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name=f"{name}_link", input_schema={"type": "object"})])

    async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        link = types.ResourceLink(type="resource_link", name="first", uri=uris[0])
        return types.CallToolResult(content=[link])

    return Server(
        name,
        version="1",
        on_list_tools=tools,
        on_call_tool=call,
        on_list_resources=resources,
        on_read_resource=read,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
    )


def mounted(*servers: Server[Any], **options: Any) -> ToolsetServer:
    return ToolsetServer(Toolset(*(RemoteToolset(each, name=each.name) for each in servers)), **options)


@tool
def plain() -> str:
    """Say something."""
    return "said"


async def test_p4_nothing_is_declared_that_nobody_offers(mode: Any) -> None:
    async with Client(ToolsetServer(Toolset(plain)).lowlevel, mode=mode) as client:
        declared = client.server_capabilities
        assert declared.resources is None and declared.prompts is None and declared.completions is None
        for refused in (client.list_resources(), client.list_prompts(), client.read_resource("a://b")):
            with pytest.raises(MCPError) as fault:
                await refused
            assert fault.value.code == types.METHOD_NOT_FOUND


async def test_p4_names_of_one_server_stay_as_they_are(mode: Any) -> None:
    async with Client(mounted(shelf("erp", "a://1")).lowlevel, mode=mode, cache=None) as client:
        assert [entry.uri for entry in (await client.list_resources()).resources] == ["a://1"]
        assert [entry.name for entry in (await client.list_prompts()).prompts] == ["plan"]
        (contents,) = (await client.read_resource("a://1")).contents
        assert isinstance(contents, types.TextResourceContents) and contents.text == "erp has a://1"
        with pytest.raises(MCPError, match="erp: no such text") as fault:
            await client.read_resource("a://2")
        assert fault.value.data == {"uri": "a://2"}
        assert client.server_capabilities.completions is None
        declared = client.server_capabilities.resources
        assert declared is not None and not declared.subscribe


async def test_p4_equal_names_are_told_apart_and_links_can_be_followed(mode: Any) -> None:
    prompts = Prompts()
    prompts.add(name="plan")(lambda: "the application's own")
    server = mounted(shelf("erp", "a://1", "a://2"), shelf("crm", "a://1"), prompts=prompts)
    async with Client(server.lowlevel, mode=mode, cache=None) as client:
        uris = [entry.uri for entry in (await client.list_resources()).resources]
        assert uris == ["erp+a://1", "a://2", "crm+a://1"]
        names = [entry.name for entry in (await client.list_prompts()).prompts]
        assert names == ["plan", "erp_plan", "crm_plan"]
        link = (await client.call_tool("crm_link", {})).content[0]
        assert isinstance(link, types.ResourceLink) and link.uri == "crm+a://1"
        (contents,) = (await client.read_resource(link.uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.uri, contents.text) == (link.uri, "crm has a://1")
        linked = (await client.get_prompt("erp_plan")).messages[0].content
        assert isinstance(linked, types.ResourceLink) and linked.uri == "erp+a://1"
        own = (await client.get_prompt("plan")).messages[0].content
        assert isinstance(own, types.TextContent) and own.text == "the application's own"
        with pytest.raises(MCPError, match="Unknown prompt: sketch"):
            await client.get_prompt("sketch")


async def test_p4_a_long_list_has_pages_and_a_foreign_cursor_is_refused(mode: Any) -> None:
    server = mounted(shelf("erp", "a://1", many=2 * PAGE))
    async with Client(server.lowlevel, mode=mode, cache=None) as client:
        found: list[str] = []
        cursor = None
        while cursor is not None or not found:
            page = await client.list_resources(cursor=cursor)
            found += [entry.uri for entry in page.resources]
            cursor = page.next_cursor
        assert len(found) == len(set(found)) == 2 * PAGE + 1
        for foreign in ("x", "ZnJvbSA5OTk5OQ==", "ZnJvbSAtMQ=="):
            with pytest.raises(MCPError, match="Unknown cursor") as fault:
                await client.list_resources(cursor=foreign)
            assert fault.value.code == types.INVALID_PARAMS


async def test_p6_a_changed_list_of_prompts_is_announced_once_to_each_client(mode: Any) -> None:
    prompts, heard = Prompts(), list[str]()

    async def hear(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    server = ToolsetServer(Toolset(plain), prompts=prompts)
    async with Client(server.lowlevel, mode=mode, cache=None, message_handler=hear) as client:
        assert text_of(await client.call_tool("plain", {})) == "said"
        with anyio.fail_after(40):
            if mode == "legacy":
                prompts.add(name="new")(lambda: "new")
                while heard.count("notifications/prompts/list_changed") < 1:
                    await client.call_tool("plain", {})
            else:
                async with client.listen(prompts_list_changed=True) as events:
                    prompts.add(name="new")(lambda: "new")
                    await anext(events)
        assert [entry.name for entry in (await client.list_prompts()).prompts] == ["new"]
    assert heard.count("notifications/resources/list_changed") == 0


def hiding() -> Server[Any]:
    """A server that hides orders in what it lists beside tools."""
    unseen = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")

    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name="plan", description=f"Plan a day.{unseen}\x1b[2J"),
                types.Prompt(name=f"plan{unseen}", description="Plan another day."),
            ]
        )

    return Server("hiding", version="1", on_list_prompts=prompts)


async def test_p4_a_server_without_tools_is_mounted_for_what_else_it_offers(mode: Any) -> None:
    server = ToolsetServer(Toolset(RemoteToolset(hiding(), name="up")))
    async with Client(server.lowlevel, mode=mode) as client:
        await server.settled()
        assert server.statuses()["up"].state == "ready"
        assert (await client.list_tools()).tools == []
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["plan"]


@pytest.mark.parametrize(
    ("policy", "names", "text", "aside"),
    [("strip", ["plan"], "Plan a day.", 1), ("refuse", [], "", 2), ("flag", ["plan", None], None, 0)],
)
async def test_f23_what_is_hidden_in_a_prompt_s_texts_is_treated_by_the_policy(
    policy: Any, names: list[str | None], text: str | None, aside: int
) -> None:
    mount = RemoteToolset(hiding(), name="up", pins=PinPolicy(hidden_text=policy))
    server = ToolsetServer(Toolset(mount))
    async with Client(server.lowlevel) as client:
        await server.settled()
        shown = (await client.list_prompts()).prompts
        set_aside = server.statuses()["up"].set_aside
    assert len(shown) == len(names) and len(set_aside) == aside
    assert all(wanted in (None, one.name) for one, wanted in zip(shown, names, strict=True))
    assert text is None or not shown or shown[0].description == text
    assert all("hidden text: tag characters" in reason and name.isascii() for name, reason in set_aside)
