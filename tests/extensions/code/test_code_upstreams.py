"""Code over mounted servers: cancellation reaches them, and their questions and deaths are told."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.faults.harness import until
from tests.support import code_upstream
from tests.support.asking import Person
from tests.support.code_client import CodeClient, workers
from tests.support.served import listening
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.code import CodeMode

pytestmark = pytest.mark.anyio

ERAS = ("legacy", "2026-07-28")
UPSTREAMS = ("stdio-legacy", "stdio-modern", "http-legacy", "http-modern")
TOOLS = ("stuck", "order", "die", "hello")
SOON = 60
WIRES = pytest.mark.pairwise(of=lambda of: (*of["upstream"].split("-"), of["mode"]))
"""Of transports and eras of servers and eras of clients, every pair."""


class Place:
    """A bridge with code mode in front of one upstream.

    Attributes:
        log: What the upstream's tools have noted.
    """

    def __init__(self, log: Path) -> None:
        self.log = log

    async def noted(self, line: str) -> None:
        await until(lambda: self.log.exists() and line in self.log.read_text().splitlines(), within=SOON)


@asynccontextmanager
async def visiting(
    upstream: str, mode: str, door: str, log: Path, warm: Warm, **options: Any
) -> AsyncGenerator[tuple[CodeClient, Place, ToolsetServer]]:
    transport, _, era = upstream.partition("-")
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            target: Any = warm.command(str(Path(code_upstream.__file__)), str(log))
        else:
            behind = await stack.enter_async_context(code_upstream.made(log))
            target = await stack.enter_async_context(listening(behind.http_app())) + "/mcp"
        mount = RemoteToolset(target, name="up", protocol=era, timeout=SOON)  # pyright: ignore[reportArgumentType]
        code = options.pop("code", None)
        server = ToolsetServer(Toolset(mount).deferred(code=True), code=code)
        await stack.enter_async_context(server)
        await server.settled()
        way: Any = server.lowlevel
        if door == "http":
            url = await stack.enter_async_context(listening(server.http_app())) + "/mcp"
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=SOON, trust_env=False))
            way = streamable_http_client(url, http_client=http)
        client = await stack.enter_async_context(Client(way, mode=mode, cache=None, **options))
        one = CodeClient(client)
        await one.grant(*TOOLS)
        yield one, Place(log), server
    assert workers() == []


@WIRES
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
async def test_m6_a_client_that_cancels_a_run_cancels_its_calls_upstream(
    upstream: str, mode: str, tmp_path: Path, warm: Warm
) -> None:
    code = "import asyncio\nawait asyncio.gather(stuck(name='one'), stuck(name='two'))"
    async with visiting(upstream, mode, "memory", tmp_path / "log", warm) as (client, place, _):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(client.run, code)
                await place.noted("began one")
                await place.noted("began two")
                group.cancel_scope.cancel()
            await place.noted("ended one")
            await place.noted("ended two")
            assert await client.value("(await hello(name='x'))['hello']") == "x"


async def test_m6_the_same_through_http(tmp_path: Path, warm: Warm) -> None:
    async with visiting("http-modern", ERAS[1], "http", tmp_path / "log", warm) as (client, place, _):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(client.run, "await stuck(name='one')")
                await place.noted("began one")
                group.cancel_scope.cancel()
            await place.noted("ended one")
            assert await client.value("(await hello(name='x'))['hello']") == "x"


@WIRES
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("mode", ERAS)
async def test_m6_a_server_behind_a_wire_asks_within_code(
    upstream: str, mode: str, tmp_path: Path, warm: Warm
) -> None:
    person = Person(*[{"size": size} for size in ("S", "M", "L")])
    code = (
        "import asyncio\na = await asyncio.gather(order(item='hat'), order(item='coat'))\n"
        "[one['size'] for one in [*a, await order(item='shoe')]]"
    )
    log = tmp_path / "log"
    async with visiting(upstream, mode, "memory", log, warm, elicitation_callback=person) as (client, _, _):
        value = await client.value(code)
    assert sorted(value[:2]) == ["M", "S"] and value[2] == "L" and len(person.asked) == 3
    assert sorted(log.read_text().split("\n")) == ["", "ordered coat", "ordered hat", "ordered shoe"]


async def test_m6_a_server_that_dies_is_a_failure_that_code_can_catch(tmp_path: Path, warm: Warm) -> None:
    async with visiting("stdio-legacy", ERAS[1], "memory", tmp_path / "log", warm) as (client, _, _):
        code = "try:\n    await die()\nexcept RuntimeError as fault:\n    said = str(fault)\nsaid"
        assert "up" in await client.value(code)


async def test_m6_runs_that_are_cancelled_while_they_wait_for_a_process_leave_none(
    tmp_path: Path, warm: Warm
) -> None:
    code = CodeMode(workers=1)
    async with visiting("http-modern", ERAS[1], "memory", tmp_path / "log", warm, code=code) as (
        client,
        place,
        _,
    ):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(client.run, "await stuck(name='one')")
                await place.noted("began one")
                for _ in range(20):
                    group.start_soon(client.run, "1")
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            await place.noted("ended one")
            assert await client.value("2") == 2
        assert len(workers()) == 1


async def test_m6_a_server_that_closes_ends_its_runs(tmp_path: Path, warm: Warm) -> None:
    """The runs are the tasks of its clients, which leave first."""
    log, told = tmp_path / "log", list[Any]()
    async with code_upstream.made(log) as behind:
        mount = RemoteToolset(behind, name="up")
        server = ToolsetServer(Toolset(mount).deferred(code=True))
        async with server, anyio.create_task_group() as group:
            found = await server.call_tool("resolve_tools", {"ids": list(TOOLS)})
            grants = [one["grant"] for one in found.structured["tools"]]

            async def run() -> None:
                arguments = {"code": "await stuck(name='one')", "grants": grants}
                told.append(await server.call_tool("run_code", arguments))

            group.start_soon(run)
            await Place(log).noted("began one")
            group.cancel_scope.cancel()
        await Place(log).noted("ended one")
    assert told == [] and workers() == [] and "one" in json.dumps(log.read_text())
