"""The tools that find others say that clients always load them, at every door and in both eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from tests.interaction.doors import ERAS
from tests.support.served import served
from tests.support.warm import Warm

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.tools.definition import FIXED_TOOLS

pytestmark = pytest.mark.anyio

WAYS = [(door, era) for door in ("memory", "stdio", "http") for era in ERAS] + [("sse", "legacy")]


@tool(meta={"vendor/note": 1})
def clock(zone: str) -> str:
    """Tell the time of a zone."""
    return f"noon in {zone}"


@tool
def listed() -> str:
    """Stay on the list."""
    return "here"


def made(*, deferred: bool = True, **extensions: Any) -> ToolsetServer:
    behind = Toolset(clock).deferred() if deferred else Toolset(clock)
    return ToolsetServer(Toolset(behind, listed), **extensions)


def main() -> None:
    import anyio

    anyio.run(made().run_stdio)


@asynccontextmanager
async def client_at(door: str, mode: Any, warm: Warm) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        if door == "stdio":
            program, *words = warm.command(str(Path(__file__)))
            target: Any = StdioServerParameters(command=program, args=words)
        elif door == "memory":
            target = (await stack.enter_async_context(made())).lowlevel
        else:
            url = await stack.enter_async_context(served(made()))
            reach = streamable_http_client if door == "http" else sse_client
            target = reach(f"{url}/{'mcp' if door == 'http' else 'sse'}")
        yield await stack.enter_async_context(Client(target, mode=mode))


@pytest.mark.parametrize(("door", "era"), WAYS)
async def test_k1_the_tools_that_find_others_are_always_loaded(door: str, era: str, warm: Warm) -> None:
    async with client_at(door, "legacy" if era == "legacy" else "2026-07-28", warm) as client:
        tools = {one.name: one.meta for one in (await client.list_tools()).tools}
    assert {*tools} == {*FIXED_TOOLS, "listed"}
    assert {name for name, meta in tools.items() if (meta or {}).get("anthropic/alwaysLoad") is True} == {
        *FIXED_TOOLS
    }


@pytest.mark.needs("code")
async def test_k1_tools_beside_search_are_always_loaded() -> None:
    async with made(code=True) as server:
        tools = {one["name"]: one.get("_meta", {}) for one in server.tools()}
    assert [name for name, meta in tools.items() if meta.get("anthropic/alwaysLoad")] == [
        *FIXED_TOOLS,
        "run_code",
        "run_read_only_code",
    ]


async def test_k1_a_server_that_lists_its_tools_leaves_them_to_the_client() -> None:
    async with made(deferred=False) as server:
        assert [one.get("_meta") for one in server.tools()] == [{"vendor/note": 1}, None]


if __name__ == "__main__":
    main()
