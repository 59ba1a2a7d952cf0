"""The client in memory: it opens a server, talks to it in both eras, and closes it."""

from __future__ import annotations

import anyio
import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.errors import StateError
from mcp_toolset.testing import Client


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_e7_a_client_of_a_server_opens_calls_and_closes_it(mode: str) -> None:
    server = ToolsetServer(Toolset(add))
    with anyio.fail_after(60):
        async with Client(server, mode=mode) as client:
            assert [one.name for one in (await client.list_tools()).tools] == ["add"]
            result = await client.call_tool("add", {"a": 2, "b": 3})
            assert (result.is_error, result.structured_content) == (False, {"result": 5})
            with pytest.raises(StateError, match="already open"):
                await server.__aenter__()
        async with server:  # it was closed, so it can be opened
            pass


@pytest.mark.anyio
async def test_e7_a_client_leaves_a_server_open_that_was_open_before() -> None:
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(add)) as server:
            async with Client(server) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"result": 2}
            with pytest.raises(StateError, match="already open"):
                await server.__aenter__()


@pytest.mark.anyio
async def test_e7_a_client_of_a_toolset_serves_it() -> None:
    with anyio.fail_after(60):
        async with Client(Toolset(add)) as client:
            assert [one.name for one in (await client.list_tools()).tools] == ["add"]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_e7_an_error_in_the_block_of_a_client_is_raised_alone(mode: str) -> None:
    with anyio.fail_after(60), pytest.raises(KeyError, match="lost"):
        async with Client(Toolset(add), mode=mode):
            raise KeyError("lost")
