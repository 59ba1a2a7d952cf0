"""A mounted server that must be single: one replica has it, the others call it through that one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import DefinitionError
from mcp_toolset.shared import SharedState

pytestmark = pytest.mark.anyio
SERVER = Path(__file__).parents[2] / "support" / "counting.py"


def command(folder: Path) -> list[str]:
    return [sys.executable, str(SERVER), str(folder / "starts")]


def name_of(mounted: Any) -> str:
    """The name of the lease of a mount."""
    link = mounted.connection.link
    return f"{link.name} {link.identity}"


@asynccontextmanager
async def replica(url: str, folder: Path) -> AsyncIterator[ToolsetServer]:
    mounted = RemoteToolset(command(folder), name="counter", single=True)
    server = ToolsetServer(Toolset(mounted), shared=SharedState(url), keep=False)
    async with server:
        yield server


async def counted(server: ToolsetServer) -> dict[str, Any]:
    told = await server.call_tool("add_one", {})
    assert not told.is_error, told.text
    return told.structured


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


async def test_r5_one_replica_has_the_server_and_the_other_calls_through_it(url: str, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with replica(url, tmp_path) as one, replica(url, tmp_path) as other:
            first, second, third = await counted(one), await counted(other), await counted(one)
    assert [each["count"] for each in (first, second, third)] == [1, 2, 3]
    assert first["pid"] == second["pid"]
    assert starts(tmp_path) == 1


async def test_r5_an_owner_that_leaves_gives_the_server_to_another_replica(url: str, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with replica(url, tmp_path) as other:
            async with replica(url, tmp_path) as late:
                assert (await counted(late))["count"] == 1
            assert (await counted(other))["count"] == 2, "a replica that only calls takes nothing with it"
        async with replica(url, tmp_path) as third:
            assert (await counted(third))["count"] == 1
    assert starts(tmp_path) == 2


async def test_r5_an_owner_that_loses_its_lease_stops_the_server(url: str, tmp_path: Path) -> None:
    shared = SharedState(url)
    async with shared.running():
        with anyio.fail_after(60):
            async with replica(url, tmp_path) as one:
                assert (await counted(one))["count"] == 1
                (remote,) = one.toolset.sources()
                lost = anyio.Event()
                remote.on_change(lambda: None if remote.status.is_up else lost.set())
                lease = name_of(remote)
                # As if the replica had been frozen for longer than its lease.
                await shared.connection.run("DEL", shared.connection.key("lease", lease), to="end a lease")
                assert await shared.leases.take(lease, ttl=60) > 1
                await lost.wait()
                told = await one.call_tool("add_one", {})
                assert told.is_error
    assert starts(tmp_path) == 1


async def test_r5_the_server_of_a_dead_owner_is_taken_over_when_its_lease_ends(
    url: str, tmp_path: Path
) -> None:
    dead = SharedState(url)
    mounted = RemoteToolset(command(tmp_path), name="counter", single=True)
    async with dead.running():
        assert await dead.leases.take(name_of(mounted), ttl=0.5)
    with anyio.fail_after(60):
        async with replica(url, tmp_path) as one:
            assert (await counted(one))["count"] == 1


def test_r5_a_single_server_has_one_session_for_all(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="a single server has one session for all callers"):
        RemoteToolset(["x"], name="counter", single=True, sessions="client")
