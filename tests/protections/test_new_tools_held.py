"""`new_tools` and `pins` hold the tools that a running server adds, also without a lock file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.support.warm import Warm

from mcp_toolset import PinPolicy, RemoteToolset, ToolsetServer, load_toolset
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.testing import ScriptedServer

pytestmark = pytest.mark.anyio

__all__ = ["line"]

GROWING = """
from mcp_toolset import Toolset, ToolsetServer, tool

@tool
async def extra() -> str:
    "A tool that comes later."
    return "ran"

@tool
async def grow() -> str:
    "Get more tools."
    await server.attach(Toolset(extra, name="more"))
    return "grown"

server = ToolsetServer(Toolset(grow), name="up")
if __name__ == "__main__":
    import asyncio
    asyncio.run(server.run_stdio())
"""

HOLDING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "new_tools of the entry": ({"new_tools": "quarantine"}, {}),
    "pins of the entry": ({"pins": "quarantine"}, {}),
    "new_tools of the section": ({}, {"new_tools": "quarantine"}),
    "pins of the section": ({}, {"pins": "quarantine"}),
    "new_tools beside other pins": ({"pins": "warn"}, {"new_tools": "quarantine"}),
}
SERVING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "neither": ({}, {}),
    "new_tools of the entry": ({"new_tools": "accept"}, {"pins": "quarantine"}),
    "a warning": ({"new_tools": "warn"}, {}),
}


async def grown(
    folder: Path, warm: Warm, entry: dict[str, Any], section: dict[str, Any]
) -> tuple[list[str], str]:
    """What a file serves after its server has got a tool more, and what the status says of it."""
    (folder / "up.py").write_text(GROWING)
    program, *rest = warm.command(str(folder / "up.py"))
    server = {"command": program, "args": rest, "prefix": False, **entry}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"up": server}, "toolset": section}))
    async with ToolsetServer(load_toolset(folder / "mcp.json")) as bridge:
        await bridge.settled()
        assert bridge.registry.names == ("grow",)
        await bridge.call_tool("grow")
        changes: Any = ()
        with anyio.fail_after(30):
            while not changes and "extra" not in bridge.registry.names:
                await anyio.sleep(0.02)
                changes = bridge.registry.sources()["up"].status.changes
        if "extra" not in bridge.registry.names:
            with pytest.raises(UnknownToolError):
                await bridge.call_tool("extra")
        return list(bridge.registry.names), " ".join(one.reason for one in changes)


@pytest.mark.parametrize("name", HOLDING)
async def test_u71_a_tool_that_a_running_server_adds_is_held_without_a_lock_file(
    name: str, tmp_path: Path, warm: Warm
) -> None:
    names, reason = await grown(tmp_path, warm, *HOLDING[name])
    assert names == ["grow"] and "it is new since the server was pinned" in reason


@pytest.mark.parametrize("name", SERVING)
async def test_u71_a_tool_that_a_running_server_adds_is_served_if_the_file_says_so(
    name: str, tmp_path: Path, warm: Warm, caplog: pytest.LogCaptureFixture
) -> None:
    names, _ = await grown(tmp_path, warm, *SERVING[name])
    assert names == ["grow", "extra"]
    assert ("extra is served: it is new" in caplog.text) is (name == "a warning")


async def test_u71_a_server_that_lists_nothing_at_first_is_pinned_by_this() -> None:
    empty = ScriptedServer("up")
    mount = RemoteToolset(empty, name="up", pins=PinPolicy(new="quarantine"))
    async with ToolsetServer(mount) as bridge:
        await bridge.settled()
        await empty.attach(RemoteToolset(ScriptedServer("more", "extra"), name="more"))
        with anyio.fail_after(30):
            while not mount.status.changes:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert not bridge.registry.names


@pytest.mark.needs("dynamic_tools")
def test_u75_the_lock_file_that_a_program_names_is_made_by_pin(line: CommandLine) -> None:
    line.write("up.py", GROWING)
    mount = f"RemoteToolset([{sys.executable!r}, 'up.py'], name='up', lock='up.lock.json')"
    line.write("app.py", f"from mcp_toolset import *\nserve({mount})\n")
    ran = line.run("list", "app.py")
    assert ran.returncode != 0 and "there is no lock file up.lock.json" in ran.stderr
    assert line.run("pin", "app.py", "--check").returncode == 1
    assert line.run("pin", "app.py").returncode == 0
    assert line.run("list", "app.py").returncode == 0
