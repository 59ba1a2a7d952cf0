"""The session that lists is closed while sessions of clients take its place, and opened again when needed."""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp import Client
from tests.faults.harness import children, until
from tests.interaction.test_client_lists import (
    COMMON,
    FIRST,
    Told,
    client_of,
    mounted_in,
    resources,
    served,
    tools,
    who,
)
from tests.support.bounds import bounds

from mcp_toolset import ToolsetServer

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, resting_after=0.0, resting_linger=0.1)


def servers() -> set[int]:
    """The processes of the mounted server."""
    return {pid for pid in children() if b"session_server" in command_of(pid)}


def command_of(pid: int) -> bytes:
    """The command of a process; empty once the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def has_processes(number: int) -> bool:
    return len(servers()) == number


def states_of(server: ToolsetServer) -> list[str]:
    """The states that a mount goes through from now on."""
    mounted, states = mounted_in(server), list[str]()
    mounted.on_change(lambda: states.append(mounted.status.state))
    return states


async def lists(client: Client, told: Told, wanted: set[str]) -> None:
    """Wait until a client that lists whenever it is told of changes has listed what is wanted."""
    while True:
        heard = len(told.methods)
        if await tools(client) == wanted:
            return
        await until(lambda after=heard: len(told.methods) > after)


async def test_u36_clients_that_call_take_one_process_each() -> None:
    async with served() as server, AsyncExitStack() as stack:
        clients = [(await stack.enter_async_context(client_of(server)))[0] for _ in range(3)]
        for client in clients:
            assert await tools(client) == {*COMMON, "lent"}
        assert len({await who(client) for client in clients}) == 3
        await until(lambda: has_processes(3))


async def test_u36_resting_is_not_seen_in_the_status_nor_by_clients() -> None:
    async with served() as server:
        states, mounted = states_of(server), mounted_in(server)
        async with client_of(server) as (client, told):
            pid = await who(client)
            await until(lambda: servers() == {int(pid)})
            assert mounted.status.tools == 4 and mounted.server_info()["name"] == "sessions"
            assert await tools(client) == {*COMMON, "lent"} and await resources(client) == FIRST
            await client.call_tool("grow", {})
            await until(told.has("notifications/tools/list_changed", "notifications/resources/list_changed"))
            assert await tools(client) == {*COMMON, "lent", "grown"} and servers() == {int(pid)}
        await until(lambda: has_processes(1) and int(pid) not in servers())
        assert set(states) == {"ready"} and mounted.status.state == "ready"


async def test_u36_a_client_that_can_be_asked_nothing_opens_the_session_that_lists_again() -> None:
    async with served() as server, client_of(server) as (client, _):
        pid = await who(client)
        await until(lambda: servers() == {int(pid)})
        async with client_of(server, capable=False) as (bare, told):
            assert await tools(bare) == COMMON
            await until(lambda: has_processes(2))
            await bare.call_tool("grow", {})
            await lists(bare, told, {*COMMON, "grown"})
            assert await tools(client) == {*COMMON, "lent"}


async def test_u36_the_session_that_lists_rests_again_once_the_last_client_that_needs_it_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, resting_quiet=0.0)
    async with served() as server, client_of(server) as (client, _):
        pid = await who(client)
        await until(lambda: servers() == {int(pid)})
        async with client_of(server, capable=False) as (bare, _):
            assert await who(bare) != pid
            assert has_processes(2)
        await until(lambda: servers() == {int(pid)})


async def test_u36_a_call_of_the_host_itself_waits_for_the_session_that_lists() -> None:
    async with served() as server, client_of(server) as (client, _):
        pid = await who(client)
        await until(lambda: servers() == {int(pid)})
        states = states_of(server)
        result = await server.call_tool("who", {})
        assert result.text != pid and set(states) == {"ready"}


async def test_u36_a_server_that_dies_while_the_listing_rests_is_started_again() -> None:
    async with served() as server, client_of(server) as (client, _):
        pid = await who(client)
        await until(lambda: servers() == {int(pid)})
        os.kill(int(pid), signal.SIGKILL)
        await until(lambda: servers() and int(pid) not in servers())
        assert await who(client) != pid and await tools(client) == {*COMMON, "lent"}


async def test_u36_a_server_that_cannot_be_opened_again_is_offline_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as server:
        mounted = mounted_in(server)
        async with client_of(server) as (client, _):
            pid = await who(client)
            await until(lambda: servers() == {int(pid)})
            link = mounted.connection.link
            assert link.process is not None
            gone = replace(link.process, command=str(tmp_path / "gone"))
            monkeypatch.setitem(vars(link), "process", gone)
        await until(lambda: mounted.status.state == "offline")
        assert "command not found" in mounted.status.reason
        with anyio.fail_after(40):
            assert (await server.call_tool("who", {})).is_error
