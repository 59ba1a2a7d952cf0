"""What a reference to a kept result must not do: alter it, pass for a value, hold what is not counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client
from mcp_types import ResourceLink, TextContent, TextResourceContents

from mcp_toolset import ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio


@tool
def rows() -> list[dict[str, int]]:
    """Make rows."""
    return [{"id": number} for number in range(500)]


@tool
def emptied(value: Any) -> str:
    """Empty what is given."""
    value.clear()
    return "emptied"


@tool
def echo(value: Any) -> str:
    """Say what is given."""
    return str(value)


@tool
def told() -> ToolResult:
    """Tell in prose what the structured content says."""
    prose = [{"type": "text", "text": "prose " * 500}]
    return ToolResult({"content": prose, "structuredContent": {"a": 1}})


def server() -> ToolsetServer:
    return ToolsetServer(Toolset(rows, emptied, echo, told), large_results=1000)


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def link_of(result: Any) -> ResourceLink:
    (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
    return link


@pytest.mark.needs("large_results")
async def test_m7_a_handler_that_changes_its_argument_does_not_change_what_is_kept() -> None:
    hub = server()
    async with hub, Client(hub.lowlevel) as client:
        id = link_of(await client.call_tool("rows", {})).name
        assert text_of(await client.call_tool("emptied", {"value": {"$result": id}})) == "emptied"
        read = await client.call_tool("read_result", {"result": id, "path": "499.id"})
        assert text_of(read).startswith("499\n")


@pytest.mark.needs("large_results")
async def test_m7_a_reference_is_refused_also_where_no_result_is_kept() -> None:
    hub = server()
    async with hub, Client(hub.lowlevel) as client:
        result = await client.call_tool("echo", {"value": {"$result": "r_0000000000000000"}})
        assert result.is_error and "there is no result 'r_0000000000000000'" in text_of(result)


@pytest.mark.needs("large_results")
async def test_m7_the_link_says_what_the_resource_is() -> None:
    hub = server()
    async with hub, Client(hub.lowlevel) as client:
        link = link_of(await client.call_tool("told", {}))
        (whole,) = (await client.read_resource(str(link.uri))).contents
        assert isinstance(whole, TextResourceContents)
        assert (link.mime_type, whole.mime_type) == ("text/plain", "text/plain")
        assert whole.text.startswith("prose ")


@pytest.mark.needs("large_results")
def test_m7_images_of_a_long_result_are_not_kept() -> None:
    from mcp_toolset.middleware import LargeResults

    large, call, context = LargeResults(10), ToolCall("draw", {}), ToolContext()
    image = {"type": "image", "data": "A" * 1000, "mimeType": "image/png"}
    result = ToolResult.of_content([{"type": "text", "text": "a long text"}, image])
    shown = large.shortened(result, call, context)
    assert image in shown.content
    (id,) = [block["name"] for block in shown.content if block["type"] == "resource_link"]
    assert large._found(id, context).result.content == [{"type": "text", "text": "a long text"}]  # pyright: ignore[reportPrivateUsage]


class Reports:
    """An application's resources, whose addresses begin like those of kept results."""

    async def list_resources(self) -> list[dict[str, Any]]:
        return [{"uri": "result://2026", "name": "2026"}]

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        return []

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        return [{"uri": uri, "mimeType": "text/plain", "text": "the year"}]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


@pytest.mark.needs("large_results")
async def test_m7_resources_of_the_application_with_the_same_scheme_are_read() -> None:
    hub = ToolsetServer(Toolset(rows), resources=Reports(), large_results=1000)
    async with hub, Client(hub.lowlevel) as client:
        (year,) = (await client.read_resource("result://2026")).contents
        assert isinstance(year, TextResourceContents) and year.text == "the year"
        (whole,) = (await client.read_resource(str(link_of(await client.call_tool("rows", {})).uri))).contents
        assert isinstance(whole, TextResourceContents) and len(whole.text) > 1000
