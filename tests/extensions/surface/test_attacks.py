"""Surfaces attacked from docs/clients.md: what does not hold yet."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import Implementation

from mcp_toolset import Tool, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio


LONG = "Tell what this does, and say it in as many words as one can think of, " * 20


def lamp(number: int) -> Tool[..., Any]:
    @tool(name=f"lamp_{number}", description=LONG, read_only=True)
    def made(level: int) -> str:
        return f"at {level}"

    return made


# MEDIUM: a client with a long version gets an internal error at its handshake, and the log a trace for each.
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_k3_a_client_may_say_any_version(mode: str) -> None:
    info = Implementation(name="claude-code", version="9" * 5_000)
    server = ToolsetServer(Toolset(lamp(1)).deferred(), surface="auto", keep=False)
    with anyio.fail_after(60):
        async with server, Client(server.lowlevel, client_info=info, mode=mode, cache=None) as client:
            assert (await client.list_tools()).tools


# LOW: a client that comes by way of mcp-remote says so in its name, and is then taken for another client.
async def test_k3_a_client_by_way_of_mcp_remote_is_known() -> None:
    info = Implementation(name="cursor-vscode (via mcp-remote 0.1.37)", version="1.0.0")
    server = ToolsetServer(Toolset(*map(lamp, range(20))).deferred(), surface="auto", keep=False)
    with anyio.fail_after(60):
        async with server, Client(server.lowlevel, client_info=info, mode="legacy", cache=None) as client:
            assert len((await client.list_tools()).tools) == 20
