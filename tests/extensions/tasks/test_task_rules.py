"""Rules apply to a call that becomes a task as to any other, once, and see its result."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import Jobs, about, call, until
from tests.interaction.raw_client import raw_client

from mcp_toolset import CallNext, RemoteToolset, ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer
from mcp_toolset.context import task as of_tasks

pytestmark = pytest.mark.anyio

MOUNTED = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])


def served(jobs: Jobs, *, mounted: bool, **options: Any) -> ToolsetServer:
    tools = Toolset(RemoteToolset(jobs.server(), name="jobs")) if mounted else jobs.toolset()
    return ToolsetServer(tools, capabilities=["ask"], **options)


@MOUNTED
async def test_j3_middleware_runs_once_and_sees_the_result_of_the_task(mounted: bool) -> None:
    seen: list[str] = []

    async def watch(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        result = await next()
        seen.append(f"{call.name}: {result.text}")
        return ToolResult.of_text(f"{result.text}, and seen")

    jobs = Jobs()
    server = served(jobs, mounted=mounted, middleware=[watch])
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            id = (await call(client, "build", what="a house"))["taskId"]
            assert seen == []
            jobs.go.set()
            ended = await until(client, id, "completed")
            assert ended["result"]["content"][0]["text"] == "built a house, and seen"
            assert seen == ["build: built a house"]


@MOUNTED
async def test_j3_a_refused_call_is_no_task(mounted: bool) -> None:
    async def refuse(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        return ToolResult.of_error("refused")

    jobs = Jobs()
    server = served(jobs, mounted=mounted, middleware=[refuse])
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            found = await call(client, "build", what="a house")
            assert found["isError"] and "taskId" not in found and jobs.started == 0


async def test_j3_a_task_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.server.handler_context.KEPT_MS", 50)
    assert of_tasks.KEPT_MS > 50
    jobs = Jobs()
    server = served(jobs, mounted=False)
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            id = (await call(client, "build", what="a house"))["taskId"]
            await jobs.cancelled.wait()
            while "error" not in (state := await about(client, "tasks/get", id)):
                await anyio.lowlevel.checkpoint()
            assert state["error"]["code"] == -32602
