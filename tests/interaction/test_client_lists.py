"""A client sees the lists, the changes and the updates of the session that its calls use."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.faults.harness import children, until
from tests.peers.processes import listening_process
from tests.support.asking import Person, text_of

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

SERVER = [sys.executable, "-S", str(Path(__file__).with_name("session_server.py"))]
MODERN = "2026-07-28"
COMMON = {"grow", "touch", "who"}
FIRST = {"mem://first"}


class Told:
    """What a client was told outside of its calls."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.ResourceListChangedNotification):
            self.methods.append(message.method)
        if isinstance(message, types.ResourceUpdatedNotification):
            self.methods.append(f"updated {message.params.uri}")

    def has(self, *expected: str) -> Callable[[], bool]:
        return lambda: set(expected) <= set(self.methods)


@asynccontextmanager
async def served(*arguments: str, **options: Any) -> AsyncGenerator[ToolsetServer]:
    with anyio.fail_after(60):
        async with ToolsetServer(
            Toolset(RemoteToolset([*SERVER, *arguments], name="up", **options))
        ) as server:
            await server.settled()
            yield server


def mounted_in(server: ToolsetServer) -> RemoteToolset:
    mounted = next(iter(server.registry.sources().values()))
    assert isinstance(mounted, RemoteToolset)
    return mounted


@asynccontextmanager
async def client_of(
    server: ToolsetServer, *, capable: bool = True, mode: str = "legacy"
) -> AsyncGenerator[tuple[Client, Told]]:
    told = Told()
    options: dict[str, Any] = {"elicitation_callback": Person()} if capable else {}
    async with Client(server.lowlevel, mode=mode, cache=None, message_handler=told, **options) as client:
        yield client, told


async def tools(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def resources(client: Client) -> set[str]:
    return {str(each.uri) for each in (await client.list_resources()).resources}


async def who(client: Client) -> str:
    return text_of(await client.call_tool("who", {}))


async def test_u36_what_a_call_has_made_is_listed_and_read_by_its_client() -> None:
    async with served() as server, client_of(server) as (client, told):
        assert await tools(client) == {*COMMON, "lent"} and await resources(client) == FIRST
        await client.call_tool("grow", {})
        await until(told.has("notifications/tools/list_changed", "notifications/resources/list_changed"))
        assert await tools(client) == {*COMMON, "lent", "grown"}
        assert await resources(client) == {*FIRST, "mem://grown"}
        assert text_of(await client.call_tool("grown", {})) == "grown ran"
        read = await client.read_resource("mem://grown")
        assert read.contents[0].model_dump()["text"] == "here"


async def test_u36_a_server_that_tells_of_no_change_is_asked_over_the_session_of_the_client() -> None:
    async with served("quiet") as server, client_of(server) as (one, _), client_of(server) as (other, _):
        assert await resources(one) == FIRST
        await one.call_tool("grow", {})
        with anyio.fail_after(40):
            while await resources(one) != {*FIRST, "mem://grown"}:
                await anyio.lowlevel.checkpoint()
        assert await resources(other) == FIRST
        read = await one.read_resource("mem://grown")
        assert read.contents[0].model_dump()["text"] == "here"


async def test_u36_what_one_client_has_made_is_seen_by_no_other() -> None:
    async with served() as server, client_of(server) as (one, told), client_of(server) as (other, untold):
        await one.call_tool("grow", {})
        await until(told.has("notifications/tools/list_changed"))
        assert await tools(other) == {*COMMON, "lent"} and await resources(other) == FIRST
        assert await who(one) != await who(other)
        with pytest.raises(MCPError):
            await other.read_resource("mem://grown")
        async with client_of(server, capable=False) as (bare, _):
            assert await tools(bare) == COMMON and await resources(bare) == FIRST
        assert untold.methods == []


async def test_u36_clients_that_can_be_asked_nothing_share_a_session_and_its_lists() -> None:
    async with (
        served() as server,
        client_of(server, capable=False) as (one, _),
        client_of(server, capable=False) as (other, told),
    ):
        assert await tools(one) == COMMON
        await one.call_tool("grow", {})
        await until(told.has("notifications/tools/list_changed"))
        assert await tools(other) == {*COMMON, "grown"} and await who(one) == await who(other)


async def test_u36_a_client_of_2026_07_28_sees_the_lists_of_its_session() -> None:
    async with served() as server, client_of(server, mode=MODERN) as (client, _):
        assert await tools(client) == {*COMMON, "lent"}
        await client.call_tool("grow", {})
        with anyio.fail_after(40):
            while "grown" not in await tools(client) or "mem://grown" not in await resources(client):
                await anyio.lowlevel.checkpoint()


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_u36_updates_go_to_the_client_whose_session_has_subscribed() -> None:
    touch = {"uri": "mem://first"}
    async with served() as server, client_of(server) as (one, told), client_of(server) as (other, untold):
        await one.subscribe_resource("mem://first")
        await other.call_tool("touch", touch)
        await one.call_tool("touch", touch)
        await until(told.has("updated mem://first"))
        assert untold.methods == []
        await one.unsubscribe_resource("mem://first")
        told.methods.clear()
        await one.call_tool("touch", touch)
        await other.subscribe_resource("mem://first")
        await other.call_tool("touch", touch)
        await until(untold.has("updated mem://first"))
        assert told.methods == []


@pytest.mark.parametrize("capable", [True, False])
async def test_u36_a_change_that_a_server_tells_of_is_told_though_the_list_is_the_same(capable: bool) -> None:
    async with served("restless") as server, client_of(server, capable=capable) as (client, told):
        await tools(client)
        await client.call_tool("stir", {})
        await until(told.has("notifications/tools/list_changed", "notifications/resources/list_changed"))
        assert len(told.methods) == 2


async def test_u36_a_change_for_all_sessions_of_a_server_is_told_once() -> None:
    command = [sys.executable, str(Path(__file__).with_name("growing.py"))]
    with listening_process(command, r"running on (http://\S+)") as base:
        async with ToolsetServer(Toolset(RemoteToolset(f"{base}/mcp", name="up"))) as server:
            with anyio.fail_after(60):
                await server.settled()
                async with client_of(server) as (client, told):
                    assert await resources(client) == {"mem://r0"}
                    await client.call_tool("grow", {})
                    pool = mounted_in(server)
                    await until(lambda: len(pool.connection.offers.entries()["resources/list"]) == 2)
                    await until(told.has("notifications/resources/list_changed"))
                    assert await resources(client) == {"mem://r0", "mem://r1"}
                    # What is told is sent before the answer to a later request.
                    await client.list_tools()
                    assert told.methods == ["notifications/resources/list_changed"]


async def test_u36_listing_opens_one_session_for_all_that_declare_the_same() -> None:
    async with served() as server:
        before, pool = children(), mounted_in(server).connection.pool
        async with client_of(server) as (one, _), client_of(server) as (other, _):
            assert await tools(one) == await tools(other) == {*COMMON, "lent"}
            assert len(pool) == 1
            assert await who(one) != await who(other) and len(pool) == 2
        await until(lambda: len(children()) == len(before))


async def test_u36_the_lists_of_a_session_end_with_it() -> None:
    async with served() as server, client_of(server, capable=False) as (bare, told):
        async with client_of(server) as (client, _):
            assert "lent" in await tools(client)
            await client.call_tool("grow", {})
            with anyio.fail_after(40):
                while "grown" not in await tools(client):
                    await anyio.lowlevel.checkpoint()
        mounted = mounted_in(server)
        await until(lambda: "grown" not in mounted.connection.snapshot.tools)
        assert await tools(bare) == COMMON and told.methods == []
        assert set(mounted.connection.snapshot.tools) == {*COMMON, "lent"}


BREAKING = """
import json, sys
broken, changes = sys.argv[1] == "later" and 1, sys.argv[1] == "announced"
lists, offers = 0, {"tools": {"listChanged": changes}}
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked["method"], asked.get("id")
    if number is None:
        continue
    answer = {"result": {}}
    if method == "initialize":
        info = {"name": "breaking", "version": "1"}
        version = asked["params"]["protocolVersion"]
        answer["result"] = {"protocolVersion": version, "capabilities": offers, "serverInfo": info}
    elif method == "tools/list":
        lists += 1
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("break", "count")]
        answer["result"]["tools"] = {"a": 1} if broken and lists > broken else tools
    elif method == "tools/call":
        if asked["params"]["name"] == "break":
            broken = broken or lists
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            changes and print(json.dumps(changed), flush=True)
        answer["result"]["content"] = [{"type": "text", "text": str(lists)}]
    elif method != "ping":
        answer = {"error": {"code": -32601, "message": "?"}}
    print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)
"""


@pytest.mark.parametrize("broken", ["announced", "unannounced", "later"])
async def test_u113_a_later_list_that_is_none_leaves_the_lists_and_the_server(
    broken: str, tmp_path: Path
) -> None:
    """The lists of a client that can be asked are those of a session of its own."""
    program = tmp_path / "breaking.py"
    program.write_text(BREAKING)
    command = [sys.executable, "-S", str(program), broken]
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(RemoteToolset(command, name="up", protocol="legacy"))) as server:
            await server.settled()
            async with client_of(server) as (client, _):
                assert await tools(client) == {"break", "count"}
                before = int(text_of(await client.call_tool("count", {})))
                await client.call_tool("break", {})
                assert await tools(client) == {"break", "count"}
                while int(text_of(await client.call_tool("count", {}))) < before + (broken != "later"):
                    await tools(client)
                assert await tools(client) == {"break", "count"}
                assert text_of(await client.call_tool("count", {}))
