"""Rules apply to a call that becomes a task as to any other, once, and see its result."""

from __future__ import annotations

import gc
import json
from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import TASKS, Jobs, about, call, until
from tests.interaction.raw_client import raw_client
from tests.transports.test_http_endpoint import HEADERS, META, posted

from mcp_toolset import RemoteToolset, ToolCall, ToolContext, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio

MOUNTED = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])


def served(jobs: Jobs, *, mounted: bool, **options: Any) -> ToolsetServer:
    tools = Toolset(RemoteToolset(jobs.server(), name="jobs")) if mounted else jobs.toolset()
    return ToolsetServer(tools, capabilities=["ask"], **options)


async def test_j3_a_task_that_has_ended_keeps_nothing_of_its_request() -> None:
    @tool(task="optional")
    async def build(context: ToolContext) -> str:
        """Build."""
        await context.progress(1)
        return "built"

    def sent(method: str, **params: Any) -> tuple[dict[str, str], bytes]:
        takes = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
        params["_meta"] = {**META, **takes, "odd-one": [["kept"]]}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        name = params.get("name") or params["taskId"]
        return {**HEADERS, "mcp-method": method, "mcp-name": name}, json.dumps(message).encode()

    server = ToolsetServer(Toolset(build))
    app = server.http_app()
    with anyio.fail_after(60):
        async with server, app.router.lifespan_context(app):
            begun = (await posted(app, *sent("tools/call", name="build", arguments={}))).json()["result"]
            state = begun
            while "result" not in state:
                state = (await posted(app, *sent("tasks/get", taskId=begun["taskId"]))).json()["result"]
            gc.collect()
            assert not [one for one in gc.get_objects() if type(one) is dict and "odd-one" in one]
    assert state["result"]["content"][0]["text"] == "built"


async def test_j3_the_long_requests_of_tasks_that_run_count_as_being_answered() -> None:
    go = anyio.Event()

    @tool(task="optional")
    async def build(plan: str, context: ToolContext) -> str:
        """Build."""
        await context.progress(1)
        await go.wait()
        return "built"

    takes = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
    plan = "x" * 4_000_000
    params = {"name": "build", "arguments": {"plan": plan}, "_meta": {**META, **takes}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    server = ToolsetServer(Toolset(build))
    app, statuses = server.http_app(), list[int]()
    with anyio.fail_after(60):
        async with server, app.router.lifespan_context(app):
            for _ in range(40):
                statuses.append((await posted(app, {**HEADERS, "mcp-name": "build"}, body)).status_code)
            assert statuses.count(200) > 20 and statuses[-1] == 503
            go.set()
            await anyio.wait_all_tasks_blocked()
            assert (await posted(app, {**HEADERS, "mcp-name": "build"}, body)).status_code == 200


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
    jobs = Jobs()
    server = served(jobs, mounted=False)
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            id = (await call(client, "build", what="a house"))["taskId"]
            await jobs.cancelled.wait()
            while "error" not in (state := await about(client, "tasks/get", id)):
                await anyio.lowlevel.checkpoint()
            assert state["error"]["code"] == -32602
