"""Figures that do not drift with the machine: requests upstream, and what calls leave behind."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

CALLS = 300


def counting(requests: Counter[str]) -> Server[Any]:
    """An upstream with one tool that counts what it is asked."""

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        requests["tools/list"] += 1
        tools = [types.Tool(name="echo", input_schema={"type": "object"})]
        return types.ListToolsResult(tools=tools, ttl_ms=60_000, cache_scope="public")

    async def on_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        requests["tools/call"] += 1
        return types.CallToolResult(content=[types.TextContent(type="text", text="echo")])

    # A list that may be kept, and a server that tells of changes: others are read again for clients.
    listen = ListenHandler(InMemorySubscriptionBus())
    return Server(
        "up", version="1", on_list_tools=on_list, on_call_tool=on_call, on_subscriptions_listen=listen
    )


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_warm_call_is_one_request_upstream_and_a_warm_list_none(mode: Any) -> None:
    requests: Counter[str] = Counter()
    with anyio.fail_after(60):
        server = ToolsetServer(Toolset(RemoteToolset(counting(requests), name="up")))
        async with server, Client(server.lowlevel, mode=mode) as client:
            await client.call_tool("echo", {})
            requests.clear()
            for _ in range(10):
                await client.list_tools()
                await client.call_tool("echo", {})
    assert requests == {"tools/call": 10}


@pytest.mark.anyio
async def test_calls_leave_nothing_behind() -> None:
    with anyio.fail_after(120):
        server = ToolsetServer(Toolset(RemoteToolset(counting(Counter()), name="up")))
        async with server, Client(server.lowlevel) as client:
            for _ in range(CALLS):
                await client.call_tool("echo", {})
            gc.collect()
            before = sys.getallocatedblocks()
            for _ in range(CALLS):
                await client.call_tool("echo", {})
            gc.collect()
            left = sys.getallocatedblocks() - before
    # Something kept for each call would be a block for each, at the least.
    assert left < CALLS / 2
