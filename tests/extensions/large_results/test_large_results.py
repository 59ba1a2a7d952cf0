"""Results that are too long for a model stay at the server, whole, for the caller that they were made for."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from mcp import Client
from mcp_types import ResourceLink, TextContent, TextResourceContents
from tests.support.config import config_of
from tests.support.contexts import OnWire

from mcp_toolset import Rules, ToolCall, ToolResult, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.middleware import LargeResults

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@tool
def rows(n: int) -> list[dict[str, int]]:
    """Make rows."""
    return [{"id": number, "total": number * 3} for number in range(n)]


@tool
def total(rows: list[dict[str, int]]) -> int:
    """Add up rows."""
    return sum(row["total"] for row in rows)


@tool
def picture() -> ToolResult:
    """Give a long text with a picture."""
    image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
    return ToolResult.of_content([{"type": "text", "text": "word " * 400}, image])


def server(limit: LargeResults | int = 1000, *, deferred: bool = False) -> ToolsetServer:
    tools: Toolset[Any] = Toolset(rows, total, picture)
    return ToolsetServer(tools.deferred() if deferred else tools, large_results=limit)


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def id_in(result: Any) -> str:
    (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
    assert link.uri == f"result://{link.name}"
    return link.name


@ERAS
async def test_m7_a_long_result_is_a_preview_a_link_and_a_way_to_the_rest(mode: Any) -> None:
    hub = server()
    async with hub, Client(hub.lowlevel, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [one.name for one in tools] == ["rows", "total", "picture", "read_result"]
        assert all(one.output_schema is None for one in tools)
        short = await client.call_tool("rows", {"n": 2})
        assert short.structured_content is not None and "kept as" not in texts(short)[0]
        long = await client.call_tool("rows", {"n": 500})
        assert long.structured_content is None and sum(map(len, texts(long))) < 2000
        id = id_in(long)
        assert "[500 × {id: number, total: number}]" in texts(long)[1] and id in texts(long)[1]
        part = await client.call_tool("read_result", {"result": id, "path": "499.total"})
        assert texts(part)[0] == "1497"
        whole = (await client.read_resource(f"result://{id}")).contents[0]
        assert isinstance(whole, TextResourceContents)
        assert json.loads(whole.text)[499] == {"id": 499, "total": 1497}
        assert texts(await client.call_tool("total", {"rows": {"$result": id}})) == ["374250"]


@ERAS
async def test_m7_deferred_tools_take_and_give_references(mode: Any) -> None:
    hub = server(500, deferred=True)
    async with hub, Client(hub.lowlevel, mode=mode) as client:
        found = await client.call_tool("search_tools", {"query": "rows", "resolve": 2})
        assert len(texts(found)[0]) > 500
        grants = {one["id"]: one["grant"] for one in json.loads(texts(found)[0])["resolved"]}
        long = await client.call_tool("call_tool", {"grant": grants["rows"], "arguments": {"n": 500}})
        arguments = {"rows": {"$result": id_in(long), "path": ""}}
        sum = await client.call_tool("call_tool", {"grant": grants["total"], "arguments": arguments})
        assert texts(sum) == ["374250"]


async def test_m7_images_stay_beside_the_preview() -> None:
    hub = server()
    async with hub, Client(hub.lowlevel) as client:
        result = await client.call_tool("picture", {})
        assert [block.type for block in result.content] == ["text", "text", "resource_link", "image"]


@ERAS
@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"$result": "r_0000000000000000"}, "there is no result 'r_0000000000000000'"),
        ({"$result": "ID", "path": "600"}, "there is no '600'; the result is [500 × "),
    ],
)
async def test_m7_a_reference_that_leads_nowhere_says_so(
    mode: Any, reference: dict[str, str], told: str
) -> None:
    hub = server()
    async with hub, Client(hub.lowlevel, mode=mode) as client:
        id = id_in(await client.call_tool("rows", {"n": 500}))
        given = {key: value.replace("ID", id) for key, value in reference.items()}
        result = await client.call_tool("total", {"rows": given})
        assert result.is_error and told in texts(result)[0]


async def test_m7_what_a_reference_stands_for_is_checked_like_any_argument() -> None:
    hub = server()
    async with hub, Client(hub.lowlevel) as client:
        id = id_in(await client.call_tool("rows", {"n": 500}))
        result = await client.call_tool("total", {"rows": {"$result": id, "path": "3"}})
        assert result.is_error and texts(result)[0].startswith("Invalid arguments for total: rows")
        more = await client.call_tool("total", {"rows": {"$result": id, "more": 1}})
        assert more.is_error, "an object with other keys is no reference"


async def test_m7_a_message_about_a_large_argument_is_short() -> None:
    hub = ToolsetServer(Toolset(rows, total))
    async with hub, Client(hub.lowlevel) as client:
        result = await client.call_tool("total", {"rows": {"x": "y" * 100_000}})
        assert result.is_error and len(texts(result)[0]) < 600
        assert 'is not of type "array"' in texts(result)[0]


def test_m7_a_result_of_one_session_is_unknown_to_another() -> None:
    large = LargeResults(10)
    call, one, other = ToolCall("rows", {}), OnWire("one"), OnWire("two")
    shown = large.shortened(ToolResult.of_text("a long text"), call, one)
    (link,) = [block for block in shown.content if block["type"] == "resource_link"]
    referring = ToolCall("total", {"rows": {"$result": link["name"]}})
    assert large.sent(referring, one).arguments == {"rows": "a long text"}
    assert large.read(link["uri"], one)[0]["text"] == "a long text"
    with pytest.raises(LookupError):
        large.read(link["uri"], other)
    with pytest.raises(Exception, match="there is no result"):
        large.sent(referring, other)


def test_m7_arguments_without_references_are_the_same_objects() -> None:
    large = LargeResults(10)
    large.shortened(ToolResult.of_text("a long text"), ToolCall("rows", {}), OnWire("one"))
    call = ToolCall("total", {"rows": [{"a": [1, {"b": None}]}], "$result": "x"})
    assert large.sent(call, OnWire("one")) is call


async def test_m7_an_owned_loop_uses_it_as_middleware() -> None:
    large = LargeResults(1000)
    tools = Toolset(rows, large.tool)
    rules = Rules(middleware=[large])
    shown = await tools.execute("rows", {"n": 500}, rules=rules)
    (link,) = [block for block in shown.content if block["type"] == "resource_link"]
    part = await tools.execute("read_result", {"result": link["name"], "path": "7.id"}, rules=rules)
    assert part.content[0]["text"] == "7"


async def test_m7_inside_the_server_results_are_whole() -> None:
    hub = server()
    async with hub:
        result = await hub.call(ToolCall("rows", {"n": 500}), OnWire("one"))
        assert len(result.structured["result"]) == 500


@pytest.mark.parametrize("options", [{"max_length": 0}, {"max_length": 10, "preview": 11}, {"ttl": 0.0}])
def test_m7_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="LargeResults: "):
        LargeResults(**options)


@pytest.mark.parametrize(
    ("said", "limit"), [(True, 20_000), (500, 500), ({"max_length": 700, "preview": 5}, 700), (False, None)]
)
async def test_m7_the_configuration_says_it(said: Any, limit: int | None) -> None:
    config = config_of({"toolset": {"large_results": said}, "mcpServers": {}})
    hub = ToolsetServer(load_toolset(config))
    async with hub:
        assert [binding.name for binding in hub.bindings()] == (["read_result"] if limit else [])
    found = config.extensions["large_results"]
    assert (None if found is None else found.max_length) == limit


def test_u115_a_preview_may_be_as_long_as_the_limit_and_no_longer() -> None:
    for preview, fits in ((9, True), (10, True), (11, False)):
        said: dict[str, Any] = {"max_length": 10, "preview": preview}
        if fits:
            config = config_of({"toolset": {"large_results": said}, "mcpServers": {}})
            shown = LargeResults.of(None, config.extensions["large_results"], cast("Any", None))
            result = shown.shortened(ToolResult.of_text("x" * 40), ToolCall("rows", {}), OnWire("one"))
            assert "x" * preview in result.text and "x" * (preview + 1) not in result.text
        else:
            with pytest.raises(DefinitionError, match="the preview of 11 is longer than 10"):
                LargeResults(**said)
            with pytest.raises(ConfigError, match="preview: is longer than max_length, 10"):
                config_of({"toolset": {"large_results": said}, "mcpServers": {}})


@pytest.mark.parametrize(
    "said", [{"max_length": 5, "preview": 6}, {"size": 5}, "much", 0, {"max_length": "5"}]
)
def test_m7_a_mistake_in_the_configuration_is_told(said: Any) -> None:
    with pytest.raises(ConfigError, match=r"toolset\.large_results"):
        config_of({"toolset": {"large_results": said}, "mcpServers": {}})


def test_m7_references_of_one_call_cannot_multiply_what_is_kept() -> None:
    large = LargeResults(10, max_stored=100)
    shown = large.shortened(ToolResult.of_text("x" * 40), ToolCall("rows", {}), OnWire("one"))
    (link,) = [block for block in shown.content if block["type"] == "resource_link"]
    twice = ToolCall("total", {"rows": [{"$result": link["name"]}] * 2})
    assert large.sent(twice, OnWire("one")).arguments == {"rows": ["x" * 40] * 2}
    with pytest.raises(Exception, match="stand for more than 100 characters"):
        large.sent(ToolCall("total", {"rows": [{"$result": link["name"]}] * 3}), OnWire("one"))
