"""Figures that do not drift with the machine: requests, function calls, what calls leave behind."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool

CALLS = 200
FEWER_PIECES = 0.8
"""The function calls that a local tool of ours may take for each on the SDK's own server."""


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
            blocks = [sys.getallocatedblocks()]
            for _ in range(3):
                for _ in range(CALLS):
                    await client.call_tool("echo", {})
                gc.collect()
                blocks.append(sys.getallocatedblocks())
    # Something kept for each call would be a block for each, at the least, and every time.
    assert min(after - before for before, after in pairwise(blocks)) < CALLS / 2


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_local_tool_takes_fewer_function_calls_than_on_the_servers_of_the_sdk(mode: Any) -> None:
    sdk = MCPServer("echo")
    sdk.tool()(echo)
    own = ToolsetServer(Toolset(tool(echo))).lowlevel
    base, ours = [await function_calls(target, mode) for target in (sdk, own)]
    # 0.68 of them in the older era, 0.66 in the newer one, in every run.
    assert 0 < ours < FEWER_PIECES * base


async def echo(text: str) -> str:
    """Return the text."""
    return text


async def function_calls(target: Any, mode: Any) -> int:
    """The number of Python functions that run for ten calls of `echo`, those of the client among them."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    with anyio.fail_after(60):
        async with Client(target, mode=mode) as client:
            await client.call_tool("echo", {"text": "first"})
            gc.collect()
            gc.disable()
            sys.setprofile(count)
            try:
                for _ in range(10):
                    await client.call_tool("echo", {"text": "again"})
            finally:
                sys.setprofile(None)
                gc.enable()
    return counted
