"""What a client learns of a server that fails, or asks for what the client cannot do (U89)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

PAGE = {"mode": "url", "message": "Log in.", "url": "https://login.example/a", "elicitationId": "e1"}
SCRIPT = """
import anyio, mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

async def tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name="gate", input_schema={"type": "object"})])

async def call(context, params):
    raise MCPError(-32042, "a page first", {"elicitations": [PAGE]})

async def main():
    server = Server("gates", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""


def gates(**options: Any) -> RemoteToolset:
    script = SCRIPT.replace("PAGE", repr(PAGE))
    return RemoteToolset([sys.executable, "-c", script], name="gates", protocol="legacy", **options)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u89_a_client_that_opens_no_pages_learns_the_address(mode: Any) -> None:
    with anyio.fail_after(30):
        async with ToolsetServer(gates()) as server, Client(server.lowlevel, mode=mode) as client:
            result = await client.call_tool("gate", {})
    assert result.is_error
    assert isinstance(result.content[0], types.TextContent)
    assert "https://login.example/a" in result.content[0].text


async def test_u89_a_bridge_that_nobody_notices_passes_the_error_on() -> None:
    with anyio.fail_after(30):
        async with ToolsetServer(gates(unlisted="pass")) as server:
            async with Client(server.lowlevel, mode="legacy") as client:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("gate", {})
    assert (caught.value.error.code, caught.value.error.message) == (-32042, "a page first")
    assert caught.value.error.data == {"elicitations": [PAGE]}


async def test_u89_a_call_of_the_only_server_that_never_started_says_why() -> None:
    remote = RemoteToolset([sys.executable, "-c", "import sys; sys.exit('no licence')"], name="dead")
    with anyio.fail_after(30):
        async with ToolsetServer(remote) as server, Client(server.lowlevel, mode="legacy") as client:
            with pytest.raises(MCPError, match="no licence"):
                await client.call_tool("anything", {})


async def test_u89_an_unknown_tool_of_a_server_that_works_is_only_unknown() -> None:
    server = Server("empty", on_list_tools=_none)
    with anyio.fail_after(30):
        async with ToolsetServer(RemoteToolset(server, name="x")) as bridge:
            async with Client(bridge.lowlevel, mode="legacy") as client:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("anything", {})
    assert caught.value.error.message == "Unknown tool: anything"


async def _none(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


GROWING = """
import anyio, mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server

notes = ["note://0"]

async def listed(context, params):
    return types.ListResourcesResult(resources=[types.Resource(name=one, uri=one) for one in notes])

async def templates(context, params):
    return types.ListResourceTemplatesResult(resource_templates=[])

async def tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name="more", input_schema={"type": "object"})])

async def more(context, params):
    notes.append(f"note://{len(notes)}")
    await context.session.send_resource_list_changed()
    return types.CallToolResult(content=[])

server = Server(
    "notes",
    on_list_resources=listed,
    on_list_resource_templates=templates,
    on_list_tools=tools,
    on_call_tool=more,
)

async def main():
    async with stdio_server() as (read, write):
        options = server.create_initialization_options(NotificationOptions(resources_changed=True))
        await server.run(read, write, options)

anyio.run(main)
"""


async def test_u89_a_change_of_resources_is_told_once(tmp_path: Path) -> None:
    program = tmp_path / "growing.py"
    program.write_text(GROWING)
    heard, news = list[str](), anyio.Event()

    async def hear(message: Any) -> None:
        nonlocal news
        heard.append(type(getattr(message, "root", message)).__name__)
        news.set()
        news = anyio.Event()

    mount = RemoteToolset([sys.executable, str(program)], name="notes", protocol="legacy")
    hub = ToolsetServer(Toolset(mount))
    with anyio.fail_after(60):
        async with hub, Client(hub.lowlevel, mode="legacy", message_handler=hear) as client:
            # What is told twice of one change is told before anything of the next one.
            for number in range(1, 4):
                told = news
                await client.call_tool("more", {})
                await told.wait()
                assert len((await client.list_resources()).resources) == number + 1
            assert heard == ["ResourceListChangedNotification"] * 3


JOBS = """
from mcp_toolset import Toolset, ToolsetServer, serve, tool

@tool(task="optional")
async def job() -> str:
    \"\"\"Work.\"\"\"
    return "done"

serve(Toolset(job), name="jobs", instructions="Use jobs.")
"""


@pytest.mark.needs("tasks")
@pytest.mark.parametrize("options", [{}, {"unlisted": "pass"}])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_u89_the_first_handshake_waits_for_a_server_of_which_nothing_is_known(
    mode: Literal["legacy", "auto"], options: Any, tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", "off")
    (tmp_path / "jobs.py").write_text(JOBS)
    mount = RemoteToolset(warm.command(str(tmp_path / "jobs.py")), name="jobs", **options)
    with anyio.fail_after(60):
        async with ToolsetServer(mount) as hub:
            first = await told(hub, mode)
            await hub.settled()
            assert first == await told(hub, mode)
    assert "Use jobs." in (first[0] or "") and "tasks" in first[1]


async def told(hub: ToolsetServer, mode: Literal["legacy", "auto"]) -> tuple[str | None, str]:
    async with Client(hub.lowlevel, mode=mode) as client:
        return client.instructions, client.server_capabilities.model_dump_json(exclude_none=True)
