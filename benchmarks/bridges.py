"""The bridges that are compared, each as a server before an upstream."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import echo_server
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from mcp_toolset import HookSet, RemoteToolset, RunNormally, ToolCall, Toolset, ToolsetServer

Scenario = Literal["memory", "stdio", "pipe", "http"]
Mode = Literal["legacy", "auto"]
Bridge = Callable[[Scenario, Mode], AbstractAsyncContextManager[Any]]


def upstream(scenario: Scenario) -> Any:
    """A fresh upstream, as the SDK's client and `RemoteToolset` take it."""
    if scenario == "memory":
        return echo_server.make()
    return StdioServerParameters(command=sys.executable, args=[str(Path(echo_server.__file__))])


def one_hook() -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def run_all(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    return hooks


def mounted(scenario: Scenario, mode: Mode) -> RemoteToolset:
    """The upstream in the era of the client, as it is for `direct` and for every bridge here.

    Without a process between there is one era alone, whatever the client speaks.
    """
    protocol = "legacy" if mode == "legacy" and scenario != "memory" else "auto"
    return RemoteToolset(upstream(scenario), name="up", protocol=protocol)


@asynccontextmanager
async def ours(scenario: Scenario, mode: Mode) -> AsyncGenerator[ToolsetServer]:
    async with ToolsetServer(Toolset(mounted(scenario, mode)), hooks=one_hook()) as server:
        await server.settled()
        yield server


@asynccontextmanager
async def ours_newest(scenario: Scenario, mode: Mode) -> AsyncGenerator[ToolsetServer]:
    """The upstream in the newest era that it knows, which is what a mount does by itself."""
    remote = RemoteToolset(upstream(scenario), name="up")
    async with ToolsetServer(Toolset(remote), hooks=one_hook()) as server:
        await server.settled()
        yield server


@asynccontextmanager
async def ours_traced(scenario: Scenario, mode: Mode) -> AsyncGenerator[ToolsetServer]:
    """In a process of its own in which somebody collects traces: a span for each request in and out."""
    trace.set_tracer_provider(TracerProvider())
    async with ours(scenario, mode) as server:
        yield server


@asynccontextmanager
async def typed(scenario: Scenario, mode: Mode) -> AsyncGenerator[Server[Any]]:
    """A bridge written by hand: typed handlers, and a client that stays open."""
    async with Client(upstream(scenario), mode=mode) as client:
        listed = await client.session.list_tools()

        async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=listed.tools)

        async def on_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            return await client.session.call_tool(params.name, params.arguments)

        yield Server("typed", version="1", on_list_tools=on_list, on_call_tool=on_call)


OWN: dict[str, Bridge] = {
    "ours": ours,
    "ours_newest": ours_newest,
    "ours_traced": ours_traced,
    "typed": typed,
}
