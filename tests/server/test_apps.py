"""Apps of several mounted servers whose pages have the same address."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.server.lowlevel import Server
from tests.support.asking import ERAS, connected

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.context.connection import APPS
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio
PAGE = "ui://app/form.html"


def app(name: str) -> Server[Any]:
    """A server with one tool, the page that it shows, and a page that it does not list."""

    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        meta = {"ui": {"resourceUri": PAGE, "visibility": ["model"]}, "ui/resourceUri": PAGE}
        shown = types.Tool(name="show", input_schema={"type": "object"}, _meta=meta)
        return types.ListToolsResult(tools=[shown])

    async def call(ctx: Any, params: Any) -> types.CallToolResult:
        link = types.ResourceLink(type="resource_link", name="page", uri=PAGE)
        meta = {"ui": {"resourceUri": PAGE, "other": [PAGE]}, "ui/resourceUri": PAGE, "of": name}
        return types.CallToolResult(content=[link], _meta=meta)

    async def resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="page", uri=PAGE)])

    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = types.TextResourceContents(uri=params.uri, text=f"{params.uri} of {name}")
        return types.ReadResourceResult(contents=[text])

    return Server(
        name, on_list_tools=tools, on_call_tool=call, on_list_resources=resources, on_read_resource=read
    )


async def pages(*names: str) -> dict[str, tuple[str, ...]]:
    """For each mount its tool's page, what is read there, and what is read of a page that is not listed."""
    found: dict[str, tuple[str, ...]] = {}
    mounts = [RemoteToolset(app(name), name=name).prefixed(name) for name in names]
    async with ToolsetServer(Toolset(*mounts)) as server:
        await server.settled()
        with anyio.fail_after(30):
            async with Client(server.lowlevel, cache=None) as client:
                listed = {entry.uri for entry in (await client.list_resources()).resources}
                for tool in (await client.list_tools()).tools:
                    meta: Any = tool.meta
                    page = meta["ui"]["resourceUri"]
                    assert meta["ui/resourceUri"] == page and meta["ui"]["visibility"] == ["model"]
                    assert page in listed
                    result = await client.call_tool(tool.name, {})
                    (link,) = result.content
                    assert isinstance(link, types.ResourceLink) and link.uri == page
                    shown: Any = result.meta
                    assert shown["ui"] == {"resourceUri": page, "other": [PAGE]}
                    assert shown["ui/resourceUri"] == page and tool.name.startswith(shown["of"])
                    texts: list[str] = []
                    for uri in (page, page.replace("form", "other")):
                        (content,) = (await client.read_resource(uri)).contents
                        assert isinstance(content, types.TextResourceContents) and content.uri == uri
                        texts.append(content.text)
                    found[tool.name] = (page, *texts)
    return found


async def test_u37_g4_each_of_two_mounts_with_one_address_shows_its_own_page() -> None:
    found = await pages("erp", "crm")
    for name in ("erp", "crm"):
        page, text, other = found[f"{name}_show"]
        assert page == f"ui://{name}/app/form.html"
        assert text == f"{PAGE} of {name}"
        assert other == f"ui://app/other.html of {name}"


async def test_u37_g4_the_pages_of_a_single_mount_keep_their_addresses() -> None:
    assert (await pages("erp"))["erp_show"][0] == PAGE


@pytest.mark.parametrize("mode", ERAS)
async def test_g4_a_page_calls_the_tools_of_its_server_by_their_own_names(mode: str) -> None:
    pages = [advertise(APPS, {"mimeTypes": ["text/html;profile=mcp-app"]})]
    async with connected(ToolsetServer(Toolset(*mounted())), mode, extensions=pages) as client:
        assert (await client.call_tool("show", {})).meta["of"] == "erp"  # type: ignore[index]
        # A server without pages has none that call it.
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("note", {})
    # Nor does a name lead to a tool that a policy denies, or that two servers have.
    both = [RemoteToolset(app(name), name=name).prefixed(name) for name in ("erp", "crm")]
    for server in (
        ToolsetServer(Toolset(*mounted()), policy=Policy(deny=["erp_show"])),
        ToolsetServer(Toolset(*both)),
    ):
        async with connected(server, mode, extensions=pages) as client:
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("show", {})
    # A client that shows no pages has none either.
    async with connected(ToolsetServer(Toolset(*mounted())), mode) as client:
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("show", {})


def mounted() -> list[Toolset]:
    return [
        RemoteToolset(app("erp"), name="erp").prefixed("erp"),
        RemoteToolset(plain(), name="crm").prefixed("crm"),
    ]


def plain() -> Server[Any]:
    """A server with a tool and without pages."""

    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="note", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[])

    return Server("plain", on_list_tools=tools, on_call_tool=call)
