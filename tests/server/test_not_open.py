"""What was not opened says so, and how it is opened."""

from __future__ import annotations

import pytest

from mcp_toolset import RemoteToolset, Toolset, ToolsetError, ToolsetServer, tool
from mcp_toolset.errors import StateError, UnknownToolError

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_u125_a_server_that_was_not_opened_says_so():
    server = ToolsetServer(Toolset(add), name="till")
    for call in (server.call_tool, server.call_as_host):
        with pytest.raises(StateError, match="server 'till' is not open; call its tools inside `async with"):
            await call("add", {"a": 1, "b": 2})
    async with server:
        assert (await server.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
        with pytest.raises(UnknownToolError):
            await server.call_tool("subtract")
    with pytest.raises(StateError, match="is not open"):
        await server.call_tool("add", {"a": 1, "b": 2})


async def test_u125_a_toolset_whose_mount_was_not_opened_says_so():
    tools = Toolset(add, RemoteToolset(["never-started"], name="time"))
    assert (await tools.execute("add", {"a": 1, "b": 2})).structured == {"result": 3}
    for toolset in (tools, RemoteToolset(["never-started"], name="time")):
        with pytest.raises(ToolsetError, match="server `time` is closed; open its toolset with `async with`"):
            await toolset.execute("get_current_time")
