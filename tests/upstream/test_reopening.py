"""A server or toolset that was closed can be opened again, in the same event loop and in another one."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.interaction.doors_server import Growing
from tests.support.asking import text_of

from mcp_toolset import (
    DynamicToolset,
    RemoteToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.concurrency.tasks import ThreadEvent
from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.transports.http.app import run_app

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.needs("dynamic_tools"),
]

PIPED = str(Path(__file__).parents[1] / "interaction" / "doors_upstream.py")
TIMES = 3
Run = Callable[[Callable[[], Awaitable[None]]], None]


@tool
def add(a: int, b: int) -> int:
    return a + b


class Provider(ToolProvider):
    """One tool, which says how often it was listed."""

    def __init__(self) -> None:
        self.listed = 0

    async def list_definitions(self) -> Sequence[ToolDefinition]:
        self.listed += 1
        return [ToolDefinition("provided", f"Listed {self.listed} times.", {"type": "object"})]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text("provided")


def mounts(log: Path) -> Toolset:
    """A mount over each transport that has something to wait for, and a provider."""
    piped = [sys.executable, "-S", PIPED, str(log)]
    return Toolset(
        add,
        RemoteToolset(piped, name="piped").prefixed("piped"),
        RemoteToolset(ToolsetServer(Toolset(add), name="inner"), name="inner").prefixed("inner"),
        RemoteToolset(Growing().server(), name="growing"),
        RemoteToolset(piped, name="deep").prefixed("deep").deferred(),
        DynamicToolset(Provider(), name="provider"),
    )


async def used(server: ToolsetServer, mode: Any) -> None:
    """One call behind each mount, and one change of a list that is announced."""
    async with Client(server.lowlevel, mode=mode, cache=None, message_handler=(heard := Heard())) as client:
        for name, arguments in (("add", {"a": 1, "b": 2}), ("inner_add", {"a": 1, "b": 2})):
            assert text_of(await client.call_tool(name, arguments)) == "3"
        for name in ("piped_steps", "provided"):
            assert text_of(await client.call_tool(name, {"tag": "t"}, progress_callback=ignore)) in (
                "steps",
                "provided",
            )
        assert not (await client.call_tool("search_tools", {"query": "steps"})).is_error
        grown = text_of(await client.call_tool("grow", {}))
        while grown not in {entry.name for entry in (await client.list_tools()).tools}:
            pass
        if mode == "legacy":
            await heard.change.wait()


class Heard:
    """Waits for the announcement of a list that has changed."""

    def __init__(self) -> None:
        self.change = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.change.set()


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    """Be told how a call is doing."""


def in_loops_of_their_own(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await work()

    for _ in range(TIMES):
        asyncio.run(bounded())


def in_one_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            for _ in range(TIMES):
                await work()

    asyncio.run(bounded())


@pytest.fixture(params=[in_loops_of_their_own, in_one_loop])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_u1_a_server_opens_again(run: Run, mode: str, tmp_path: Path) -> None:
    server = ToolsetServer(mounts(tmp_path / "log"), name="again")

    async def once() -> None:
        async with server:
            await server.settled()
            await used(server, mode)

    run(once)


def test_u1_a_toolset_for_a_loop_of_ones_own_opens_again(run: Run, tmp_path: Path) -> None:
    toolset = mounts(tmp_path / "log")

    async def once() -> None:
        async with toolset:
            view, call = toolset.view(), ToolCall("inner_add", {"a": 1, "b": 2})
            assert {"add", "inner_add", "grow", "piped_steps", "provided"} <= set(view)
            assert (await view["inner_add"].execute(call, LOCAL_CONTEXT)).text == "3"

    run(once)


def test_u1_a_provider_that_has_changed_is_listed_again_in_each_loop(run: Run) -> None:
    provider = Provider()
    toolset = DynamicToolset(provider, name="provider")

    async def once() -> None:
        async with toolset:
            listed = provider.listed
            told = anyio.Event()
            stop = toolset.on_change(told.set)
            toolset.changed()
            await told.wait()
            stop()
            assert provider.listed == listed + 1

    run(once)


def test_u1_a_server_on_http_and_a_mount_of_it_open_again(run: Run) -> None:
    server = ToolsetServer(Toolset(add), name="web")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    hub = ToolsetServer(
        Toolset(
            RemoteToolset(f"http://127.0.0.1:{port}/mcp", name="http").prefixed("http"),
            RemoteToolset(f"http://127.0.0.1:{port}/sse", name="sse").prefixed("sse"),
        ),
        name="hub",
    )

    async def once() -> None:
        async with anyio.create_task_group() as group:
            # uvicorn closes what it is given.
            group.start_soon(run_app, server.http_app(), listening.dup())
            async with hub:
                await hub.settled()
                for mode in ("legacy", "2026-07-28"):
                    async with Client(hub.lowlevel, mode=mode, cache=None) as client:
                        for name in ("http_add", "sse_add"):
                            assert text_of(await client.call_tool(name, {"a": 1, "b": 2})) == "3"
            group.cancel_scope.cancel()

    with listening:
        run(once)


def test_u1_a_flag_that_is_set_between_two_loops_is_seen_in_the_next_one() -> None:
    flag = ThreadEvent()

    async def waits() -> None:
        flag.attach()
        with anyio.fail_after(40):
            await flag.wait()

    async def attaches() -> None:
        flag.attach()

    asyncio.run(attaches())
    asyncio.run(anyio.to_thread.run_sync(flag.set))
    assert flag.is_set()
    asyncio.run(waits())
