"""Slow calls of clients that know no tasks are answered with a handle, for two fixed tools."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.extensions.tasks.jobs import Jobs, served
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import Toolset, ToolsetServer, load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
MOUNTED = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])


async def text(client: RawClient, tool: str, **arguments: object) -> str:
    found = await client.ask("tools/call", name=tool, arguments=arguments)
    return found["content"][0]["text"]


async def handle(client: RawClient) -> str:
    said = await text(client, "build", what="a house")
    assert "Call get_task with this task_id" in said
    return said.partition("task_id: ")[2]


@ERAS
@MOUNTED
async def test_j3_a_slow_call_is_answered_with_a_handle(mounted: bool, era: str) -> None:
    jobs = Jobs()
    async with served(jobs, mounted=mounted, era=era, task_after=0.1) as client:
        names = [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]
        assert names[-2:] == ["get_task", "cancel_task"]
        id = await handle(client)
        assert (await text(client, "get_task", task_id=id)).startswith("The task is working")
        jobs.go.set()
        while "still" in (said := await text(client, "get_task", task_id=id)) or "working" in said:
            await anyio.lowlevel.checkpoint()
        assert said == "built a house" and jobs.started == 1


@MOUNTED
async def test_j3_a_handle_cancels_its_call(mounted: bool) -> None:
    jobs = Jobs()
    async with served(jobs, mounted=mounted, task_after=0.1) as client:
        id = await handle(client)
        await jobs.running.wait()
        assert await text(client, "cancel_task", task_id=id) == "The task is cancelled."
        await jobs.cancelled.wait()
        assert "task not found" in (await text(client, "get_task", task_id="none")).lower()


@ERAS
async def test_j3_a_call_that_its_client_cancels_before_there_is_a_handle_ends(era: str) -> None:
    jobs = Jobs()
    async with served(jobs, mounted=False, era=era, task_after=60) as client:
        number = await client.begin("tools/call", name="build", arguments={"what": "a house"})
        await jobs.running.wait()
        await client.send(method="notifications/cancelled", params={"requestId": number})
        with anyio.fail_after(30):
            await jobs.cancelled.wait()


@ERAS
async def test_j3_a_quick_call_has_its_result_with_handles_too(era: str) -> None:
    async with served(Jobs(), mounted=True, era=era, task_after=30) as client:
        assert await text(client, "plain") == "at once"
        assert await text(client, "only") == "ran as a task"


async def test_j3_without_handles_there_are_no_tools_for_them() -> None:
    server = ToolsetServer(Toolset())
    async with server, raw_client(server, "modern") as client:
        assert (await client.ask("tools/list"))["tools"] == []
    with pytest.raises(DefinitionError, match="task_after is a positive number"):
        ToolsetServer(Toolset(), task_after=0)


def test_j3_a_file_says_after_how_many_seconds_there_is_a_handle(tmp_path: Path) -> None:
    def configured(said: object) -> ToolsetServer:
        (tmp_path / "mcp.json").write_text(json.dumps({"toolset": {"task_after": said}, "mcpServers": {}}))
        return ToolsetServer(load_toolset(load_config(tmp_path / "mcp.json")))

    assert configured(20).extensions["task_after"].after == 20
    assert configured(False).extensions.get("task_after") is None
    for wrong in (True, 0, "soon", []):
        with pytest.raises(ConfigError, match="task_after: must be false, a positive number of seconds, or"):
            configured(wrong)
