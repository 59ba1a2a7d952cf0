"""Limits hold wherever a file says them, and from the moment at which it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.configured import BOUND, Folder

from mcp_toolset import Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.policy import Limits

pytestmark = pytest.mark.anyio

ONCE = {"*": {"calls": 1}}


async def ran(server: ToolsetServer, name: str, times: int = 2) -> list[bool]:
    return [not (await server.call_tool(name)).is_error for _ in range(times)]


def folder_at(path: Path) -> Folder:
    path.mkdir()
    return Folder(path)


async def test_i8_limits_of_an_entry_alone_hold(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"one": {**folder.entry("a"), "limits": ONCE}, "two": folder.entry("a")})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            assert await ran(server, "one_a") == [True, False]
            assert await ran(server, "two_a") == [True, True]


async def test_i8_limits_that_a_reload_brings_hold_at_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"one": folder.entry("a")})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            assert await ran(server, "one_a") == [True, True]
            assert server.extensions.get("limits") is None
            folder.write({"one": folder.entry("a")}, limits=ONCE)
            report = await server.reload(timeout=BOUND)
            assert not report.at_restart and await ran(server, "one_a") == [True, False]
            folder.write({"one": folder.entry("a")}, limits=False)
            await server.reload(timeout=BOUND)
            assert await ran(server, "one_a") == [True, True]


async def test_i8_limits_of_every_file_that_is_served_or_attached_hold(tmp_path: Path) -> None:
    served: list[Any] = []
    for name, limits in (("a", {"one/*": {"calls": 1}}), ("b", {"two/*": {"calls": 2}}), ("c", ONCE)):
        folder = folder_at(tmp_path / name)
        folder.write({{"a": "one", "b": "two", "c": "three"}[name]: folder.entry("x")}, limits=limits)
        served.append(load_toolset(load_config(folder.config)))
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(*served[:2])) as server:
            await server.settled()
            assert await ran(server, "one_x", 3) == [True, False, False]
            assert await ran(server, "two_x", 3) == [True, True, False]
            await server.attach(served[2])
            await server.settled()
            assert await ran(server, "three_x") == [True, False]


async def test_i8_limits_of_the_program_hold_beside_those_of_the_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"one": folder.entry("a", "b")}, limits={"one/a": {"calls": 1}})
    server = ToolsetServer(load_toolset(load_config(folder.config)), limits={"one_b": Limits(calls=1)})
    with anyio.fail_after(BOUND):
        async with server:
            await server.settled()
            assert await ran(server, "one_a") == await ran(server, "one_b") == [True, False]


async def test_i8_a_derived_server_has_counters_of_its_own() -> None:
    @tool
    def knock() -> str:
        """Knock."""
        return "come in"

    server = ToolsetServer(Toolset(knock), limits={"*": Limits(calls=1)})
    for each in (server, server.derived()):
        async with each:
            assert await ran(each, "knock") == [True, False]


@pytest.mark.parametrize("said", [True, 5, [], {"*": {"calls": 1}}, {"*": 5}])
def test_i8_what_are_no_limits_is_refused_when_the_server_is_made(said: Any) -> None:
    with pytest.raises(DefinitionError, match="takes"):
        ToolsetServer(Toolset(), limits=said)


def test_i8_true_stands_for_nothing_in_a_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({}, limits=True)
    with pytest.raises(ConfigError, match=r"toolset\.limits: must be an object such as"):
        load_config(folder.config)
