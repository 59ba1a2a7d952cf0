"""The tools of a server that announces no change are read again for clients."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import NotificationOptions, Server
from tests.interaction import asker
from tests.interaction.test_heard_changes import over_http
from tests.support.asking import Person, text_of

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

QUIET = [sys.executable, "-S", str(Path(__file__).with_name("session_server.py")), "quiet"]
MODES = ("legacy", "2026-07-28")
Grown = Callable[[Client], Awaitable[None]]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of servers from other tests."""
    monkeypatch.setenv("MCP_TOOLSET_CACHE", "off")


class Growing:
    """A server of 2026-07-28 without `listChanged`, or that says nothing though it has declared it."""

    def __init__(self) -> None:
        self.tools = ["grow"]
        self.lists = 0
        self.server = Server[Any]("growing", on_list_tools=self.list, on_call_tool=self.call)

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        self.lists += 1
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in self.tools]
        )

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "grow":
            self.tools.append("grown")
        return asker.text(f"{params.name} ran")


@asynccontextmanager
async def bridged(target: Any, *, bridges: int = 1) -> AsyncGenerator[ToolsetServer]:
    inner = ToolsetServer(Toolset(RemoteToolset(target, name="up")))
    if bridges == 1:
        async with inner:
            await inner.settled()
            yield inner
        return
    async with over_http(inner) as url, bridged(f"{url}/mcp", bridges=bridges - 1) as outer:
        yield outer


async def listed(client: Client) -> None:
    assert "grown" in {tool.name for tool in (await client.list_tools()).tools}


async def called(client: Client) -> None:
    assert text_of(await client.call_tool("grown", {})) == "grown ran"


@pytest.mark.pairwise
@pytest.mark.parametrize("seen", [listed, called])
@pytest.mark.parametrize("capable", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_u87_what_a_call_has_added_unannounced_is_listed_and_called_at_once(
    upstream: str, mode: Any, capable: bool, seen: Grown
) -> None:
    target = QUIET if upstream == "legacy" else Growing().server
    person = Person() if capable else None
    with anyio.fail_after(30):
        async with (
            bridged(target) as server,
            Client(server.lowlevel, mode=mode, cache=None, elicitation_callback=person) as client,
        ):
            await client.list_tools()
            await client.call_tool("grow", {})
            await seen(client)


@pytest.mark.parametrize("mode", MODES)
async def test_u87_a_server_that_declares_changes_and_says_nothing_is_read_again(mode: Any) -> None:
    made = Growing()
    declared = NotificationOptions(tools_changed=True)
    made.server.create_initialization_options = (  # pyright: ignore[reportAttributeAccessIssue]
        lambda *_, **__: Server.create_initialization_options(made.server, declared)
    )
    with anyio.fail_after(30):
        async with bridged(made.server) as server, Client(server.lowlevel, mode=mode, cache=None) as client:
            await client.list_tools()
            await client.call_tool("grow", {})
            await listed(client)


async def test_u87_reading_again_is_bounded_in_rate() -> None:
    made = Growing()
    with anyio.fail_after(30):
        async with bridged(made.server) as server, Client(server.lowlevel, cache=None) as client:
            began, before = anyio.current_time(), made.lists
            for _ in range(50):
                await client.list_tools()
            assert made.lists - before <= 1 + (anyio.current_time() - began)
