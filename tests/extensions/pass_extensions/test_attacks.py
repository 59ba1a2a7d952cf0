"""Passed extensions attacked from docs/passing-extensions.md: what does not hold yet."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.extensions.pass_extensions import lamp_server
from tests.extensions.pass_extensions.lamp_server import LAMPS
from tests.interaction.raw_client import raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, load_toolset
from mcp_toolset.errors import ToolsetError

__all__ = ["line"]

pytestmark = pytest.mark.anyio

MINE = {"extensions": {LAMPS: {}}}


def lamps(name: str = "up") -> Toolset[Any]:
    return RemoteToolset([sys.executable, lamp_server.__file__, "modern", name], name=name).prefixed(name)


# MEDIUM: an identifier written with `!`, to leave it out, passes all the same, and nothing says so. In
# permissions such notations are errors (docs/policies.md).
async def test_g5_an_identifier_that_is_left_out_by_a_mark_does_not_pass() -> None:
    with anyio.fail_after(60):
        try:
            server = ToolsetServer(Toolset(lamps()), keep=False, pass_extensions=["*", f"!{LAMPS}"])
        except ToolsetError:
            return
        try:
            async with server:
                await server.settled()
                async with raw_client(server, "modern", MINE) as client:
                    said = await client.ask("com.example/lamps/told")
        except ToolsetError:
            return
    assert "error" in said


# MEDIUM: patterns that are none, or that fit no identifier, are taken without a word.
@pytest.mark.parametrize(
    "said", [["*", "!com.example/*"], [""], ["com.example/{a,b}"], ["com.example/a,com.b/c"]]
)
def test_g5_notations_that_fit_no_identifier_are_mistakes(line: CommandLine, said: list[str]) -> None:
    servers = {"up": {"command": "true"}}
    line.write("mcp.json", json.dumps({"toolset": {"pass_extensions": said}, "mcpServers": servers}))
    done = line.run("check", "mcp.json")
    assert done.returncode == 1 and "pass_extensions" in done.stdout + done.stderr, done.stdout


# MEDIUM: `null` passes everything; other keys that protect say "is null, so it would protect nothing".
async def test_g5_null_passes_nothing_or_is_a_mistake(tmp_path: Path) -> None:
    command = [sys.executable, lamp_server.__file__, "modern", "up"]
    document: dict[str, Any] = {
        "toolset": {"pass_extensions": None},
        "mcpServers": {"up": {"command": command[0], "args": command[1:]}},
    }
    (tmp_path / "mcp.json").write_text(json.dumps(document))
    with anyio.fail_after(60):
        try:
            tools = load_toolset(tmp_path / "mcp.json")
        except ToolsetError:
            return
        async with ToolsetServer(tools, keep=False) as server:
            await server.settled()
            async with raw_client(server, "modern", MINE) as client:
                said = await client.ask("com.example/lamps/told")
    assert "error" in said


# LOW: names that JSON-RPC and MCP keep go on to the server if they are written in another case, or begin
# with `rpc.` or `io.modelcontextprotocol/`.
@pytest.mark.parametrize("method", ["Tools/list", "rpc.discover", "io.modelcontextprotocol/told"])
async def test_g5_names_that_are_kept_never_pass(method: str) -> None:
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(lamps()), keep=False) as server:
            await server.settled()
            async with raw_client(server, "modern", MINE) as client:
                said = await client.ask(method)
    assert said["error"]["message"] == "Method not found"  # an answer of the server has its name before it
