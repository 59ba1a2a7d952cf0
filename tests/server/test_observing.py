"""What observers are told of served calls, of local, mounted and deferred tools, in both eras."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.support.asking import ERAS, text_of

from mcp_toolset import CallReport, RemoteToolset, Rules, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UnknownToolError

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def read(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


@tool
async def add(a: int) -> int:
    """Add one."""
    return a + 1


def hub(heard: list[CallReport], *, deferred: bool) -> ToolsetServer:
    mount = RemoteToolset(ToolsetServer(Toolset(read)).lowlevel, name="erp").prefixed("erp")
    tools = Toolset(add, mount.deferred() if deferred else mount)
    return ToolsetServer(tools, rules=Rules(observers=[heard.append]))


def told(heard: list[CallReport]) -> list[tuple[str, str, str, str, str]]:
    return [(one.called, one.tool, one.server, one.outcome, one.reason) for one in heard]


@pytest.mark.parametrize("mode", ERAS)
async def test_u60_local_and_mounted_tools_and_unknown_names_are_told_with_their_server(mode: Any):
    heard: list[CallReport] = []
    with anyio.fail_after(60):
        async with hub(heard, deferred=False) as server:
            info = types.Implementation(name="desk", version="1.2")
            async with Client(server.lowlevel, mode=mode, client_info=info) as client:
                await client.call_tool("add", {"a": 1})
                await client.call_tool("erp_read", {"number": 1})
                await client.call_tool("erp_read", {"number": "x"})
                with pytest.raises(MCPError):
                    await client.call_tool("erp_write", {})
    assert told(heard) == [
        ("add", "add", "", "result", ""),
        ("erp_read", "erp_read", "erp", "result", ""),
        ("erp_read", "erp_read", "erp", "refused", "invalid arguments"),
        ("erp_write", "", "", "refused", "unknown tool"),
    ]
    assert {one.protocol_version for one in heard} == {"2025-11-25" if mode == "legacy" else "2026-07-28"}
    assert {one.client for one in heard} == {"desk 1.2"}
    assert all((one.session is not None) == (mode == "legacy") for one in heard)


@pytest.mark.parametrize("mode", ERAS)
async def test_u60_a_deferred_tool_that_ran_is_named_with_its_server(mode: Any):
    heard: list[CallReport] = []
    with anyio.fail_after(60):
        async with hub(heard, deferred=True) as server:
            async with Client(server.lowlevel, mode=mode) as client:
                found = await client.call_tool("search_tools", {"query": "read an invoice", "resolve": 1})
                assert found.structured_content is not None
                grant = found.structured_content["resolved"][0]["grant"]
                arguments = {"grant": grant, "arguments": {"number": 7}}
                done = await client.call_tool("call_read_only_tool", arguments)
                assert text_of(done) == "invoice 7"
                await client.call_tool("call_tool", {**arguments, "arguments": {}})
                await client.call_tool("call_tool", {"grant": "erp_read.nobody-has-this"})
                server.grants.revoke_all()
                await client.call_tool("call_tool", arguments)
    assert told(heard) == [
        ("search_tools", "search_tools", "", "result", ""),
        ("call_read_only_tool", "erp_read", "erp", "result", ""),
        ("call_tool", "erp_read", "erp", "refused", "invalid arguments"),
        ("call_tool", "call_tool", "", "refused", "no valid grant"),
        ("call_tool", "call_tool", "", "refused", "no valid grant"),
    ]
    assert grant not in repr(heard)
    assert [one.ran for one in heard] == [True, True, False, False, False]


async def test_u60_calls_of_the_host_and_of_a_server_that_is_down_are_told():
    heard: list[CallReport] = []
    down = RemoteToolset(["no-such-program"], name="down")
    tools = Toolset(Toolset(add).deferred(), down)
    with anyio.fail_after(60):
        async with ToolsetServer(tools, rules=Rules(observers=[heard.append])) as server:
            await server.call_as_host("add", {"a": 1})
            with pytest.raises(UnknownToolError):
                await server.call_tool("down_read")
    assert told(heard) == [("add", "add", "", "result", ""), ("down_read", "", "", "refused", "unknown tool")]
