"""A change that a server tells of in any session counts for all that the bridge does with its tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.shared.subscriptions import ToolsListChanged
from tests.interaction.test_questions import ENVIRONMENT, PrintingPorts, upstreams
from tests.support.asking import Person, text_of
from tests.support.served import listening
from tests.support.warm import Warm

from mcp_toolset import PinPolicy, RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
MODES = ("legacy", "2026-07-28")
UPSTREAMS = ("stdio_legacy", "stdio_modern", "http_legacy", "http_modern", "sse_legacy", "sse_modern")
"""The `modern` ones are servers of both eras."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of servers from other tests."""
    monkeypatch.setenv("MCP_TOOLSET_CACHE", "off")


# A change over HTTP is one of a whole process, so each test has one of its own.
@pytest.fixture
def targets(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, str(HERE / "changing.py")) as made:
        yield made


@asynccontextmanager
async def over_http(server: ToolsetServer) -> AsyncGenerator[str]:
    async with server:
        await server.settled()
        async with listening(server.http_app()) as url:
            yield url


@asynccontextmanager
async def bridged(target: Any, *, bridges: int = 1, **options: Any) -> AsyncGenerator[ToolsetServer]:
    """The last of some bridges before a server; the options are those of its mount."""
    async with AsyncExitStack() as stack:
        for _ in range(bridges - 1):
            inner = ToolsetServer(Toolset(RemoteToolset(target, name="up")))
            target = f"{await stack.enter_async_context(over_http(inner))}/mcp"
        mount = RemoteToolset(target, name="up", **options)
        server = await stack.enter_async_context(ToolsetServer(Toolset(mount)))
        await server.settled()
        yield server


def client_of(server: ToolsetServer, mode: Any, *, capable: bool) -> Client:
    return Client(server.lowlevel, mode=mode, cache=None, elicitation_callback=Person() if capable else None)


async def described(client: Client) -> dict[str, str | None]:
    return {tool.name: tool.description for tool in (await client.list_tools()).tools}


@pytest.mark.pairwise
@pytest.mark.parametrize("bridges", [1, 2])
@pytest.mark.parametrize("capable", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_u121_a_change_that_the_session_of_a_client_tells_is_listed_or_quarantined(
    targets: dict[str, Any], upstream: str, mode: str, capable: bool, bridges: int
) -> None:
    with anyio.fail_after(60):
        async with (
            bridged(targets[upstream], bridges=bridges) as server,
            client_of(server, mode, capable=capable) as client,
        ):
            assert (await described(client))["target"] == "Version 1."
            await client.call_tool("change", {})
            while (await described(client))["target"] != "Version 2.":
                await anyio.lowlevel.checkpoint()
            assert text_of(await client.call_tool("target", {})) == "version 2 ran"
        async with (
            bridged(targets[upstream], bridges=bridges, pins=PinPolicy(changed="quarantine")) as server,
            client_of(server, mode, capable=capable) as client,
        ):
            assert text_of(await client.call_tool("target", {})).endswith(" ran")
            await client.call_tool("change", {})
            while "target" in await described(client):
                await anyio.lowlevel.checkpoint()
            with pytest.raises(MCPError):
                await client.call_tool("target", {})


async def test_u115_a_change_in_the_session_of_a_client_that_has_left_counts_no_more(
    targets: dict[str, Any],
) -> None:
    pins = PinPolicy(changed="quarantine")
    with anyio.fail_after(30):
        async with (
            bridged(targets["stdio_legacy"], pins=pins) as server,
            client_of(server, "legacy", capable=True) as stays,
        ):
            async with client_of(server, "legacy", capable=True) as leaves:
                await leaves.call_tool("change", {})
                while "target" in await described(leaves):
                    await anyio.lowlevel.checkpoint()
            while "target" not in await described(stays):
                await anyio.lowlevel.checkpoint()
            assert text_of(await stays.call_tool("target", {})) == "version 1 ran"


@pytest.mark.pairwise
@pytest.mark.parametrize("name", ["add", "change"])
@pytest.mark.parametrize("door", ["stdio", "sse", "http"])
@pytest.mark.parametrize("capable", [True, False])
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_u86_a_modern_client_that_listens_hears_the_change_that_its_call_causes(
    warm: Warm, targets: dict[str, Any], upstream: str, capable: bool, door: str, name: str
) -> None:
    hub = warm.command(
        str(HERE / "asking_hub.py"),
        json.dumps({"up": targets[upstream]}),
        "stdio" if door == "stdio" else "http",
    )
    heard = False
    try:
        with anyio.fail_after(30), ExitStack() as stack:
            target: Any = StdioServerParameters(command=hub[0], args=hub[1:], env=ENVIRONMENT)
            if door != "stdio":
                (port,) = stack.enter_context(PrintingPorts(hub))
                target = f"http://127.0.0.1:{port}/mcp"
            if door == "sse":
                target = sse_client(f"http://127.0.0.1:{port}/sse")
            person = Person() if capable else None
            async with Client(target, mode=MODES[1], cache=None, elicitation_callback=person) as client:
                while "up_target" not in await described(client):
                    await anyio.lowlevel.checkpoint()
                async with client.listen(tools_list_changed=True) as changes:
                    before = await described(client)
                    await client.call_tool(f"up_{name}", {})
                    async for change in changes:
                        assert isinstance(change, ToolsListChanged)
                        if await described(client) != before:
                            heard = True
                            break
    except* anyio.BrokenResourceError:
        # The SDK's client for SSE breaks on a message that arrives while it is closed.
        if door != "sse" or not heard:
            raise
    assert heard


@pytest.mark.needs("code")
@pytest.mark.parametrize(
    ("upstream", "mode"), [(name, MODES[number // 2 % 2]) for number, name in enumerate(UPSTREAMS)]
)
async def test_u121_a_grant_for_the_earlier_definition_ends_for_calls_and_for_code(
    targets: dict[str, Any], upstream: str, mode: Any
) -> None:
    tools = Toolset(RemoteToolset(targets[upstream], name="up")).deferred(code=True)
    with anyio.fail_after(30):
        async with ToolsetServer(tools) as server, client_of(server, mode, capable=True) as client:
            await server.settled()
            found = await client.call_tool("resolve_tools", {"ids": ["change", "target"]})
            change, target = [one["grant"] for one in (found.structured_content or {})["tools"]]
            code = {"code": "await target()", "grants": [target]}
            assert text_of(await client.call_tool("call_tool", {"grant": target})) == "version 1 ran"
            assert "version 1 ran" in text_of(await client.call_tool("run_code", code))
            assert text_of(await client.call_tool("call_tool", {"grant": change})) == "version 2 ran"
            while not (refused := await client.call_tool("call_tool", {"grant": target})).is_error:
                await anyio.lowlevel.checkpoint()
            assert "changed" in text_of(refused)
            refused = await client.call_tool("run_code", code)
            assert refused.is_error and "version" not in text_of(refused)
