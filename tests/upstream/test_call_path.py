"""The way of a call to a mounted server is short, and needs no module of the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.support.warm import Warm

import mcp_toolset
from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.transports.line_dispatcher import PipePair

pytestmark = pytest.mark.anyio

BOTH = str(Path(__file__).parents[1] / "interaction" / "upstream.py")
HOME = str(Path(mcp_toolset.__file__).parent)
MOST_FRAMES = 5


def functions_above(frame: FrameType | None) -> list[str]:
    """The functions of the package on the stack, from the innermost to the one that calls the upstream."""
    names: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(HOME):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    call = "UpstreamConnection.call"
    return names[: names.index(call)] if call in names else []


@pytest.mark.parametrize(
    ("client", "protocol"), [("legacy", "auto"), ("legacy", "modern"), ("auto", "auto"), ("auto", "legacy")]
)
async def test_between_the_call_of_an_upstream_and_the_written_line_are_few_functions(
    client: str, protocol: Any, monkeypatch: pytest.MonkeyPatch, warm: Warm
) -> None:
    stacks: list[list[str]] = []
    write_line = PipePair.write_line

    def seen(self: PipePair, *parts: bytes, **how: Any) -> None:
        # A modern client of a legacy server is asked by round trips, so that its call has a task of its own.
        stacks.append(functions_above(sys._getframe(1)))
        write_line(self, *parts, **how)

    monkeypatch.setattr(PipePair, "write_line", seen)
    mount = RemoteToolset(warm.command(BOTH), name="up", protocol=protocol)
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)) as server, Client(server.lowlevel, mode=client) as caller:
            await server.settled()
            stacks.clear()
            await caller.call_tool("double", {"n": 2})
    assert [len(stack) for stack in stacks if len(stack) > MOST_FRAMES] == []
    assert any(stacks)


MOUNTS = """
import asyncio, sys
from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

def one() -> str:
    return "one"

async def main():
    target = sys.argv[1:] or ToolsetServer(Toolset(one))
    async with ToolsetServer(Toolset(RemoteToolset(target, name="up"))) as server:
        await server.settled()
        assert not (await server.call_tool("one", {})).is_error

asyncio.run(main())
print(*sorted({"mcp", "mcp_types", "httpx2", "opentelemetry", "starlette", "uvicorn"} & sys.modules.keys()))
"""
"""A program that mounts a server, calls its tool, and says which of the heavy packages it has imported."""

PLAIN = str(Path(__file__).parents[1] / "support" / "plain_server.py")


@pytest.mark.parametrize(
    "target", [[], [sys.executable, PLAIN, json.dumps({"tools": ["one"]})]], ids=["in process", "stdio"]
)
def test_a_server_is_mounted_and_called_without_the_sdk_and_without_http(target: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MOUNTS, *target], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
