"""A mounted server is told of the extensions that the bridge carries whole, and of no others."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client.extension import advertise
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.lowlevel import Server
from tests.support.asking import connected, text_of

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

TASKS = "io.modelcontextprotocol/tasks"
APPS = "io.modelcontextprotocol/ui"
EXTENSIONS = [advertise(TASKS), advertise(APPS, {"mimeTypes": ["text/html"]}), advertise("org.example/own")]


def upstream() -> Server[Any]:
    """A server of 2026-07-28 that has tools which run only as tasks."""

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        names = ("declared", "begins", "needs")
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        )

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        said = json.dumps((ctx.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY))
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    server = Server[Any]("tasks", version="1", on_list_tools=listed, on_call_tool=called)

    async def as_task(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else ""
        if name == "begins":
            return {"resultType": "task", "taskId": "1", "status": "working"}
        if name == "needs":
            data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "declare tasks", data)
        return await call_next(ctx)

    server.middleware.append(as_task)
    return server


def bridge() -> ToolsetServer:
    return ToolsetServer(Toolset(RemoteToolset(upstream(), name="up")))


async def test_u35_a_server_is_told_of_the_extensions_that_are_carried_whole() -> None:
    async with connected(bridge(), "2026-07-28", extensions=EXTENSIONS) as client:
        told = json.loads(text_of(await client.call_tool("declared", {})))
        assert told == {"extensions": {APPS: {"mimeTypes": ["text/html"]}}}


async def test_u35_the_bridge_declares_no_tasks_to_its_clients() -> None:
    async with connected(bridge(), "2026-07-28", extensions=EXTENSIONS) as client:
        declared = client.server_capabilities
        assert declared is not None and declared.tasks is None and TASKS not in (declared.extensions or {})


async def test_u35_a_task_that_nobody_asked_for_is_told_as_such() -> None:
    async with connected(bridge(), "2026-07-28", extensions=EXTENSIONS) as client:
        refused = await client.call_tool("begins", {})
        assert refused.is_error and f"it began a task although no client declared {TASKS}" in text_of(refused)


async def test_u35_a_tool_that_runs_only_as_a_task_is_told_as_such() -> None:
    async with connected(bridge(), "2026-07-28", extensions=EXTENSIONS) as client:
        with pytest.raises(MCPError, match=f"only with {TASKS}, which was not declared to it"):
            await client.call_tool("needs", {})
