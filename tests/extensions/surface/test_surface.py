"""What each client sees of the tools behind search, over the protocol and in both eras."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, MCPError
from mcp_types import Implementation
from tests.support.asking import text_of

from mcp_toolset import RemoteToolset, Tool, Toolset, ToolsetServer, tool
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.extensions.surface.clients import CLIENTS, UNKNOWN, client_of, decided
from mcp_toolset.extensions.surface.extension import ClientSurface
from mcp_toolset.hub.toolset import load_toolset
from mcp_toolset.policy import Policy
from mcp_toolset.tools.definition import FIXED_TOOLS

pytestmark = pytest.mark.anyio

ERAS = ("legacy", "auto")
UPSTREAM = Path(__file__).parents[2] / "support" / "plain_server.py"
CLAUDE = Implementation(name="claude-code", version="2.1.197")
CURSOR = Implementation(name="cursor-vscode", version="1.0.0")
OTHER = Implementation(name="someone", version="1")
LONG = "Tell what this lamp does, " + "and say it in as many words as one can think of, " * 4


def lamp(number: int) -> Tool[..., Any]:
    @tool(name=f"lamp_{number}", description=LONG, read_only=True)
    def made(level: int) -> str:
        return f"lamp {number} at {level}"

    return made


@tool
def beside() -> str:
    """Stay on the list."""
    return "here"


def hub(count: int, **options: Any) -> ToolsetServer:
    behind = Toolset(*map(lamp, range(count))).deferred()
    return ToolsetServer(Toolset(behind, beside), **options)


LAMPS = [f"lamp_{number}" for number in range(40)]
SEARCHING = {*FIXED_TOOLS, "beside"}


@asynccontextmanager
async def seen_by(
    server: ToolsetServer, info: Implementation, mode: Any, **more: Any
) -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        async with Client(server.lowlevel, mode=mode, client_info=info, cache=None, **more) as client:
            yield client


async def names(client: Client) -> set[str]:
    return {one.name for one in (await client.list_tools()).tools}


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_with_list_a_client_sees_and_calls_every_tool(mode: str) -> None:
    async with hub(40, surface="list") as server, seen_by(server, OTHER, mode) as client:
        assert await names(client) == {*LAMPS, "beside"}
        assert text_of(await client.call_tool("lamp_3", {"level": 2})) == "lamp 3 at 2"
        assert "search" not in (client.instructions or "")
        with pytest.raises(MCPError, match="^Unknown tool: lamp_99$"):
            await client.call_tool("lamp_99", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_auto_lists_and_defers_for_two_clients_of_one_server(mode: str) -> None:
    async with (
        hub(40, surface="auto") as server,
        seen_by(server, CURSOR, mode) as cursor,
        seen_by(server, CLAUDE, mode) as claude,
    ):
        for _ in range(2):
            assert await names(cursor) == {*LAMPS, "beside"}
            assert await names(claude) == SEARCHING
        assert text_of(await cursor.call_tool("lamp_1", {"level": 1})) == "lamp 1 at 1"
        with pytest.raises(MCPError, match="Unknown tool: lamp_1; find tools with search_tools"):
            await claude.call_tool("lamp_1", {"level": 1})
        assert "40 tools can be found by search" in (claude.instructions or "")
        assert "by search" not in (cursor.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_auto_lists_a_small_hub_to_everyone(mode: str) -> None:
    async with hub(3, surface=True) as server:
        for info in (CLAUDE, CURSOR, OTHER):
            async with seen_by(server, info, mode) as client:
                assert await names(client) == {*LAMPS[:3], "beside"}


async def test_k3_without_the_extension_nothing_is_listed() -> None:
    async with hub(3) as server, seen_by(server, CURSOR, "legacy") as client:
        assert server.extensions.lists_all is None
        assert await names(client) == SEARCHING


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_what_a_policy_denies_is_not_listed_and_not_called(mode: str) -> None:
    policy = Policy(deny=["lamp_7"])
    async with hub(40, surface="list", policy=policy) as server, seen_by(server, OTHER, mode) as client:
        assert await names(client) == {*LAMPS, "beside"} - {"lamp_7"}
        with pytest.raises(MCPError, match="Unknown tool: lamp_7"):
            await client.call_tool("lamp_7", {"level": 1})


async def test_k3_a_server_that_judges_access_lists_nothing() -> None:
    server = hub(3, surface="list", access=lambda tool, context: None)
    async with server, seen_by(server, OTHER, "legacy") as client:
        assert await names(client) == SEARCHING


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_a_client_that_is_listed_the_tools_hears_of_changes(mode: str) -> None:
    heard = anyio.Event()

    async def told(message: Any) -> None:
        if "tools/list_changed" in str(getattr(message, "method", "")):
            heard.set()

    async with hub(40, surface="list") as server:
        async with seen_by(server, OTHER, mode, message_handler=told) as client:
            assert "lamp_40" not in await names(client)
            await server.attach(Toolset(lamp(40)).deferred())
            if mode == "legacy":  # a modern client asks for a stream of changes first
                await heard.wait()
            assert "lamp_40" in await names(client)


async def test_k3_a_connected_client_keeps_its_way_when_the_hub_grows() -> None:
    async with hub(3, surface="auto") as server:
        async with seen_by(server, OTHER, "legacy") as early:
            assert "lamp_0" in await names(early)
            await server.attach(Toolset(*map(lamp, range(3, 40))).deferred())
            assert await names(early) == {*LAMPS, "beside"}
            async with seen_by(server, OTHER, "legacy") as late:
                assert await names(late) == SEARCHING


@pytest.mark.parametrize(("count", "is_listed"), [(2, True), (40, False)])
async def test_k3_the_first_list_waits_for_a_server_that_is_starting_and_then_decides(
    tmp_path: Path, count: int, is_listed: bool
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    said = {"tools": LAMPS[:count], "about": LONG, "start": str(gate)}
    lamps = RemoteToolset([sys.executable, str(UPSTREAM), json.dumps(said)], name="far").deferred()
    server = ToolsetServer(lamps, surface="auto", keep=False, list_timeout=60)
    async with server.opened():
        async with seen_by(server, OTHER, "legacy") as client, anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, lambda: gate.open("w").close())
            listed = await names(client)
            assert ("lamp_0" in listed) is is_listed
            assert ("search_tools" in listed) is not is_listed


async def test_k3_before_any_server_has_listed_its_tools_a_client_searches() -> None:
    tools = RemoteToolset(["no-such-program"], name="gone").deferred()
    async with ToolsetServer(tools, surface="auto") as server, seen_by(server, OTHER, "legacy") as client:
        assert await names(client) == {*FIXED_TOOLS}
        assert "no server has listed" in server.extensions["surface"].decision("someone").why


@pytest.mark.parametrize(
    ("name", "version", "tools", "tokens", "way"),
    [
        ("claude-code", "2.1.197", 5, 900, "list"),
        ("claude-code", "2.1.197", 30, 5_000, "search"),
        ("claude-code", "2.1.9", 500, 80_000, "search"),
        ("cursor-vscode", "1.0.0", 500, 80_000, "list"),
        ("Cursor", "", 30, 5_000, "list"),
        ("codex-mcp-client", "0.171.0", 30, 5_000, "search"),
        ("Visual Studio Code", "1.110.0", 129, 1_900, "search"),
        ("windsurf-client", "1.0.0", 90, 1_900, "list"),
        ("github-copilot-developer", "1.0.0", 500, 80_000, "search"),
        ("", "", 30, 5_000, "search"),
    ],
)
def test_k3_the_table_decides_by_name_version_and_number_of_tools(
    name: str, version: str, tools: int, tokens: int, way: str
) -> None:
    assert decided(client_of(name, version), tools, tokens).way == way


def test_k3_every_row_of_the_table_is_reached_and_says_why() -> None:
    for row in CLIENTS:
        version = ".".join(map(str, row.since)) or "0"
        assert client_of(row.names[0].upper(), version) is row
        assert all(decided(row, n, n * 170).why for n in (0, 5, 30, 500))
    assert client_of("nobody") is UNKNOWN


def config(folder: Path, section: Any, **entry: Any) -> Path:
    path = folder / "mcp.json"
    servers = {"a": {"command": "x"}, "b": {"command": "y", **entry}}
    path.write_text(json.dumps({"toolset": section, "mcpServers": servers}))
    return path


@pytest.mark.parametrize(
    ("section", "deferred"),
    [
        ({"surface": "auto"}, [True, False]),
        ({"surface": "search"}, [True, False]),
        ({"surface": True}, [True, False]),
        ({"surface": "list"}, [False, False]),
        ({"surface": False}, [False, False]),
        ({"surface": "auto", "deferred": False}, [False, False]),
        ({}, [False, False]),
    ],
)
def test_k3_the_key_of_a_file_puts_tools_behind_search_unless_the_file_says_otherwise(
    tmp_path: Path, section: dict[str, Any], deferred: list[bool]
) -> None:
    made = load_config(config(tmp_path, section, deferred=False))
    assert [one.deferred for one in made.servers] == deferred
    server = ToolsetServer(load_toolset(made))
    assert ("surface" in [one.key for one in server.extensions]) is bool(section.get("surface"))


def test_k3_a_way_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="toolset.surface: must be true, false, one of list"):
        load_config(config(tmp_path, {"surface": "sometimes"}))
    with pytest.raises(DefinitionError, match="'all' is no way; use list, search or auto"):
        ClientSurface("all")  # type: ignore[arg-type]


async def test_k3_a_list_of_servers_says_what_each_client_gets_and_why() -> None:
    async with hub(40, surface="auto") as server:
        facts = server.extensions.facts()["surface"]
    assert facts["way"] == "auto"
    assert facts["all tools"].startswith("41 tools, about ")
    assert facts["Cursor"].startswith("list: Cursor has a search of its own")
    assert facts["Claude Code"].startswith("search: 41 tools of about ")
    assert facts["another client"].startswith("search: ")
