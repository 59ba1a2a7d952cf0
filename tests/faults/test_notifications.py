"""What an upstream says before the result of a call, in one go: it arrives, in order, before the result."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.faults.harness import hostile_http, mount, specials

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer
from mcp_toolset.upstream.in_flight import CallInFlight, CallsInFlight

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
TOOLS = specials("flood")
LAZY = 50
"""Turns of the event loop that a slow caller takes for each notification; more than any result takes."""


class Slow(ToolContext):
    """A caller that gives up its turn many times before it has a notification."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @property
    def wants_progress(self) -> bool:
        return True

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._hear(progress)

    async def notify(self, method: str, params: Any) -> None:
        await self._hear(params["data"])

    async def _hear(self, what: Any) -> None:
        for _ in range(LAZY):
            await anyio.lowlevel.checkpoint()
        self.heard.append(what)


async def flooded(remote: RemoteToolset, said: int) -> list[Any]:
    caller = Slow()
    async with ToolsetServer(Toolset(remote)) as server:
        with anyio.fail_after(30):
            result = await server.call_tool("flood", {"count": said}, context=caller)
        heard = list(caller.heard)
        assert result.text == "done"
        await anyio.wait_all_tasks_blocked()
        assert caller.heard == heard
    return heard


@pytest.mark.parametrize("modern", [False, True])
async def test_u70_over_stdio_everything_is_there_before_the_result(modern: bool) -> None:
    # A server that announces changes has a request open beside the call.
    remote = mount(tools=TOOLS, modern=modern, listen=modern, silent=["subscriptions/listen"])
    assert await flooded(remote, 8) == [step for number in range(8) for step in (number, number)]


@pytest.mark.parametrize("path", ["mcp", "sse"])
@pytest.mark.parametrize("modern", [False, True])
async def test_u70_over_http_everything_is_there_before_the_result(modern: bool, path: str) -> None:
    with hostile_http(tools=TOOLS, modern=modern) as (port, _):
        remote = RemoteToolset(f"http://127.0.0.1:{port}/{path}", name="up", timeout=60, start_timeout=20)
        assert await flooded(remote, 9) == list(range(9))


async def test_u70_what_may_be_of_any_call_of_a_client_is_there_before_every_result() -> None:
    calls, caller, done, outside = CallsInFlight(), Slow(), list[str](), copy_context()
    both = [CallInFlight(caller, client="one") for _ in range(2)]
    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            with calls.told_by(group.start_soon), calls.of(both[0]), calls.of(both[1]):
                said = {"level": "info", "data": "for either"}
                # A reader of pipes is in nobody's context.
                assert outside.run(calls.take, "notifications/message", said)
                for call in both:
                    await call.told()
                    done.append(caller.heard[0])
    assert done == ["for either"] * 2


async def test_u70_a_call_that_is_made_anew_in_a_further_round_is_told_again() -> None:
    calls, caller = CallsInFlight(), Slow()
    call = CallInFlight(caller, client="one")
    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            with calls.told_by(group.start_soon):
                for said in ("first round", "second round"):
                    with calls.of(call):
                        copy_context().run(calls.take, "notifications/message", {"data": said})
                        await call.told()
    assert caller.heard == ["first round", "second round"]


@pytest.mark.long
def test_u70_paths_through_the_bridge_lose_nothing_on_the_wire(tmp_path: Path) -> None:
    script, report = ROOT / "benchmarks" / "notifications.py", tmp_path / "report.json"
    options = ["--calls", "80", "--busy", "0", "--only", "http modern stdio modern", "--json", str(report)]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert (found["calls"], found["lost"], found["late"]) == (80, 0, 0)


async def test_u70_a_client_of_an_older_revision_sets_the_level_for_a_server_of_2026() -> None:
    server = MCPServer("modern")

    @server.tool()
    async def speak(ctx: Context) -> str:
        """Say two things."""
        await ctx.info("info")  # pyright: ignore[reportDeprecated]
        await ctx.error("error")  # pyright: ignore[reportDeprecated]
        return "done"

    heard: list[Any] = []

    async def hear(params: Any) -> None:
        heard.append(params.data)

    async with ToolsetServer(Toolset(RemoteToolset(server, name="up"))) as bridge:
        with anyio.fail_after(30), warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            async with Client(bridge.lowlevel, mode="legacy", cache=None, logging_callback=hear) as client:
                assert client.server_capabilities.logging is not None
                await client.set_logging_level("error")
                await client.call_tool("speak", {})
                await client.list_tools()
    assert heard == ["error"]
