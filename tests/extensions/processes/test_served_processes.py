"""Processes of tools that are served, for clients of both eras, and across restarts (J4, H4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.asking import ERAS, connected, text_of

from mcp_toolset import RunningProcess, ToolContext, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio


async def add(process: RunningProcess, numbers: list[int]) -> int:
    for number in numbers:
        await process.emit("added", number)
    return sum(numbers)


@tool
async def begin(context: ToolContext, numbers: list[int]) -> str:
    """Begin to add."""
    return (await context.processes.start("add", add, numbers)).id


@tool
async def shown(context: ToolContext, id: str) -> dict[str, Any]:
    """Show a sum, once it is known."""
    total = await context.processes.result(id)
    [process] = await context.processes.list()
    events = await context.processes.events(id)
    return {"sum": total, "tool": process.tool, "events": [event.data for event in events]}


def served(file: Any, *capabilities: str) -> ToolsetServer:
    server = ToolsetServer(Toolset(begin, shown), capabilities=capabilities, processes=file)
    server.extensions.alone()
    return server


@pytest.mark.parametrize("mode", ERAS)
async def test_j4_h4_a_client_finds_its_process_after_a_restart(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "p.sqlite3"
    async with connected(served(file, "processes"), mode) as client:
        id = text_of(await client.call_tool("begin", {"numbers": [1, 2, 3]}))
        first = await client.call_tool("shown", {"id": id})
    async with connected(served(str(file), "processes"), mode) as client:
        second = await client.call_tool("shown", {"id": id})
    told = {"sum": 6, "tool": "begin", "events": [1, 2, 3]}
    assert first.structured_content == second.structured_content == told


async def test_j4_h4_a_tool_needs_the_capability_and_a_server_that_keeps_processes(tmp_path: Path) -> None:
    for server, way in (
        (served(tmp_path / "p.sqlite3"), "capabilities=[…, 'processes']"),
        (served(False, "processes"), "ToolsetServer(…, processes=True)"),
    ):
        async with connected(server, "auto") as client:
            result = await client.call_tool("begin", {"numbers": []})
        assert result.is_error and way in text_of(result)


async def test_j4_without_a_path_the_file_is_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    server = served(True, "processes")
    assert server.extensions["processes"].records._store.path.name == "processes.sqlite3"
