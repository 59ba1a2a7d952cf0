"""Whose business garbage collection is: that of `serve` and the command line in their own process alone."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Generator

import pytest

from mcp_toolset.concurrency.tasks import MUCH, owning, staying

HOST = """
import asyncio, gc, sys

touched = []
for name in ("collect", "disable", "enable", "freeze", "set_threshold"):
    def note(*_, name=name):
        if "mcp_toolset" in sys._getframe(1).f_globals.get("__name__", ""):
            touched.append(name)
    setattr(gc, name, note)

import mcp_toolset
from mcp_toolset import Toolset, ToolsetServer, RemoteToolset, tool

for name in mcp_toolset.__all__:
    getattr(mcp_toolset, name)

def numbered(label):
    async def run() -> str:
        return "ran"
    return Toolset(*(tool(name=f"{label}{number}")(run) for number in range(600)))

async def main():
    async with ToolsetServer(numbered("up")) as inner:
        async with ToolsetServer(Toolset(numbered("own"), RemoteToolset(inner, name="r"))) as server:
            await server.settled()
            assert (await server.call_tool("up3")).text == "ran", await server.call_tool("up3")

asyncio.run(main())
print(touched, gc.isenabled(), gc.get_freeze_count())
"""


@pytest.fixture
def collecting() -> Generator[None]:
    """Collection switched on, and nothing frozen afterwards."""
    gc.enable()
    yield
    gc.enable()
    gc.unfreeze()


CYCLES = """
import asyncio, gc

from mcp.client import Client
from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool

@tool
def echo(text: str) -> str:
    return text

async def main():
    upstream = ToolsetServer(Toolset(echo))
    async with ToolsetServer(Toolset(RemoteToolset(upstream, name="r"))) as server:
        async with Client(server.lowlevel, mode="legacy") as client:
            for _ in range(3):
                await client.call_tool("echo", {"text": "x"})
            gc.collect()
            gc.disable()
            for _ in range(100):
                await client.call_tool("echo", {"text": "x"})
            print(gc.collect() < 100)

asyncio.run(main())
"""


def test_a_call_leaves_nothing_to_the_garbage_collector() -> None:
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.needs("model_loop")
def test_u5_a_host_application_keeps_its_collector_to_itself() -> None:
    done = subprocess.run([sys.executable, "-c", HOST], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[] True 0\n", "")


@pytest.mark.usefixtures("collecting")
def test_u5_nothing_stays_where_the_process_is_not_owned() -> None:
    before = gc.get_freeze_count()
    with staying():
        assert gc.isenabled()
        kept = [[number] for number in range(2 * MUCH)]
    assert gc.get_freeze_count() <= before
    assert len(kept) == 2 * MUCH


@pytest.mark.usefixtures("collecting")
def test_what_stays_is_out_of_collections_from_then_on() -> None:
    before = gc.get_freeze_count()
    with owning(), staying():
        assert not gc.isenabled()
        kept = [[number] for number in range(2 * MUCH)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > before + MUCH
    assert len(kept) == 2 * MUCH


@pytest.mark.usefixtures("collecting")
def test_little_is_not_made_to_stay_so_that_its_garbage_is_found_later() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with owning(), staying():
        kept = [[number] for number in range(1000)]
    assert gc.get_freeze_count() <= before
    assert gc.is_tracked(kept)


@pytest.mark.usefixtures("collecting")
def test_a_fault_leaves_collection_on_and_freezes_nothing() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(ValueError, match="no"), owning(), staying():
        raise ValueError("no")
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before


@pytest.mark.usefixtures("collecting")
def test_a_program_that_has_switched_collection_off_is_left_alone() -> None:
    gc.disable()
    before = gc.get_freeze_count()
    with owning(), staying():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() <= before
