"""The hub: a configuration file as one server, with everything behind search."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
HUB = ROOT / "servers" / "hub" / "hub.py"


def hub(folder: Path, servers: dict[str, Any], *options: str) -> StdioServerParameters:
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers, "toolset": {"list_timeout": 60}}))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return StdioServerParameters(
        command=sys.executable,
        args=[str(HUB), str(config), *options],
        env={"PATH": path, "PYTHONWARNINGS": "error", "MCP_TOOLSET_CACHE": "off"},
    )


SERVERS = {
    "time": {"command": "mcp-server-time"},
    "gone": {"command": "no-such-command-here"},
    "off": {"command": "mcp-server-git", "disabled": True},
}


async def test_h24_one_server_down_does_not_keep_the_others_and_is_reported(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with Client(hub(tmp_path, SERVERS)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [
                "hub_status",
                "search_tools",
                "resolve_tools",
                "call_tool",
                "call_read_only_tool",
            ]
            # A search waits for servers that are starting; the status tells how they are doing now.
            found = await client.call_tool("search_tools", {"query": "current time", "resolve": 1})
            assert found.structured_content is not None
            status = (await client.call_tool("hub_status", {})).structured_content
            assert status is not None
            time, gone = status["result"]
            assert (time["server"], time["state"], time["tools"]) == ("time", "ready", 2)
            assert gone["state"] == "offline" and "command not found" in gone["reason"]
            grant = found.structured_content["resolved"][0]["grant"]
            now = await client.call_tool("call_tool", {"grant": grant, "arguments": {"timezone": "UTC"}})
            assert not now.is_error


async def test_listed_shows_the_tools_as_the_file_says(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with Client(hub(tmp_path, SERVERS, "--listed")) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
    assert names == {"hub_status", "time_get_current_time", "time_convert_time"}


async def test_a_broken_configuration_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    broken = tmp_path / "mcp.json"
    broken.write_text('{"mcpServers": {"a": }')
    done = await anyio.run_process([sys.executable, str(HUB), str(broken)], check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"hub: ") and done.stderr.count(b"\n") == 1
