"""Lists and results that are none, and lists of which one entry cannot be read."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, hostile, hostile_http, mount, tool, until

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def served(transport: str, **script: Any) -> AsyncGenerator[ToolsetServer]:
    if transport == "stdio":
        async with ToolsetServer(Toolset(RemoteToolset(hostile(**script), name="up"))) as server:
            await server.settled()
            yield server
        return
    with hostile_http(**script) as (port, _):
        remote = RemoteToolset(f"http://127.0.0.1:{port}/mcp", name="up")
        async with ToolsetServer(Toolset(remote)) as server:
            await server.settled()
            yield server


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


BROKEN = {
    "half a character": tool("broken", description="cut \ud83d"),
    "half a character in a parameter": tool(
        "broken", inputSchema={"type": "object", "properties": {"\udc00": {}}}
    ),
    "110 levels": tool("broken", inputSchema=nested(110)),
    "300 levels": tool("broken", inputSchema=nested(300)),
}


async def test_u44_f17_a_tool_that_cannot_be_read_is_set_aside_by_itself(
    transport: str, tmp_path: Path
) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([tool("echo"), *(entry | {"name": kind} for kind, entry in BROKEN.items())]))
    async with served(transport, tools_file=str(listed)) as server:
        status = server.statuses()["up"]
        assert (status.state, status.tools) == ("ready", 1)
        assert [name for name, _ in status.set_aside] == [*BROKEN]
        with anyio.fail_after(SOON):
            assert not (await server.call_tool("echo", {})).is_error


@pytest.mark.parametrize("page", [{}, {"tools": "nonsense"}, {"tools": None}], ids=json.dumps)
async def test_u43_a_later_list_that_is_none_leaves_the_last_one_and_says_why(
    page: dict[str, Any], tmp_path: Path
) -> None:
    pages = tmp_path / "page.json"
    pages.write_text(json.dumps({"tools": [tool("echo"), tool("change")]}))
    up = mount(page_file=str(pages))
    async with ToolsetServer(Toolset(up)) as server:
        await server.settled()
        pages.write_text(json.dumps(page))
        await server.call_tool("change", {})
        await until(lambda: up.status.reason)
        assert "has no list of tools" in up.status.reason
        assert (up.status.state, up.status.tools) == ("ready", 2)
        pages.write_text(json.dumps({"tools": [tool("echo")]}))
        await server.call_tool("change", {})
        await until(lambda: up.status.tools == 1)
        assert up.status.reason == ""


async def test_u43_a_first_list_that_is_none_is_the_reason_of_an_offline_server(tmp_path: Path) -> None:
    pages = tmp_path / "page.json"
    pages.write_text("{}")
    up = mount(page_file=str(pages))
    async with ToolsetServer(Toolset(up)):
        await until(lambda: up.status.state == "offline")
        assert "has no list of tools" in up.status.reason


async def test_u43_a_result_without_anything_is_an_error_and_content_or_structure_alone_is_one(
    transport: str,
) -> None:
    empty, enough = [{}, {"_meta": {}}], [{"content": []}, {"structuredContent": {"a": 1}}]
    async with served(transport, results=[*empty, *enough]) as server:
        with anyio.fail_after(SOON):
            for result in empty:
                answered = await server.call_tool("echo", {})
                assert answered.is_error, result
                assert "neither content nor structuredContent" in answered.text
            for result in enough:
                assert not (await server.call_tool("echo", {})).is_error, result
