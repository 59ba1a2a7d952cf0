"""Big catalogs are compiled beside what is served: others are answered meanwhile, whatever the size."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator

import anyio
import anyio.lowlevel
import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.bridge.beside import BIG, MUCH, beside, in_worker, staying
from mcp_toolset.tools.view import ToolBinding


@pytest.fixture
def collecting() -> Generator[None]:
    """Collection switched on, and nothing frozen afterwards."""
    gc.enable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.anyio
async def test_the_loop_goes_on_while_work_for_a_big_catalog_is_done() -> None:
    answered = threading.Event()
    seen: list[bool] = []

    async def work() -> None:
        seen.append(await beside(lambda: answered.wait(10), BIG + 1))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            # On the loop itself it would wait for what comes after it.
            await anyio.wait_all_tasks_blocked()
            answered.set()
    assert seen == [True]


@pytest.mark.anyio
async def test_work_comes_to_its_end_beside_a_loop_that_is_never_idle() -> None:
    done = threading.Event()

    def work() -> int:
        ends = time.thread_time() + 0.3
        while time.thread_time() < ends:
            pass
        done.set()
        return 7

    async def call_over_and_over() -> None:
        while not done.is_set():
            sum(range(5000))
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(call_over_and_over)
            assert await in_worker(work) == 7


@pytest.mark.anyio
async def test_what_work_raises_comes_out_as_it_is() -> None:
    def fail() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        await beside(fail, BIG + 1)


@pytest.mark.anyio
async def test_work_for_few_tools_is_done_where_it_is_asked_for() -> None:
    assert await beside(threading.get_ident, BIG) == threading.get_ident()


@pytest.mark.usefixtures("collecting")
def test_what_stays_is_out_of_collections_from_then_on() -> None:
    before = gc.get_freeze_count()
    with staying():
        assert not gc.isenabled()
        kept = [[number] for number in range(2 * MUCH)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > before + MUCH
    assert len(kept) == 2 * MUCH


@pytest.mark.usefixtures("collecting")
def test_little_is_not_made_to_stay_so_that_its_garbage_is_found_later() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with staying():
        kept = [[number] for number in range(1000)]
    assert gc.get_freeze_count() <= before
    assert gc.is_tracked(kept)


@pytest.mark.usefixtures("collecting")
def test_a_fault_leaves_collection_on_and_freezes_nothing() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(ValueError, match="no"), staying():
        raise ValueError("no")
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before


@pytest.mark.usefixtures("collecting")
def test_a_program_that_has_switched_collection_off_is_left_alone() -> None:
    gc.disable()
    before = gc.get_freeze_count()
    with staying():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() <= before


def numbered(count: int) -> Toolset:
    async def run() -> str:
        """Run."""
        return "ran"

    return Toolset(*(tool(name=f"t{number}")(run) for number in range(count)))


@pytest.mark.parametrize(("count", "elsewhere"), [(3, False), (BIG + 1, True)])
@pytest.mark.usefixtures("collecting")
@pytest.mark.anyio
async def test_a_server_compiles_many_tools_off_its_loop(count: int, elsewhere: bool) -> None:
    threads: set[int] = set()

    def seen(binding: ToolBinding) -> bool:
        threads.add(threading.get_ident())
        return True

    with anyio.fail_after(60):
        async with ToolsetServer(numbered(count).filtered(seen)) as server:
            assert len(server.tools()) == count
            threads.clear()
            await server.settled()
            assert (threads == {threading.get_ident()}) is not elsewhere
            assert len(server.tools()) == count
            result = await server.call_tool("t1")
    assert result.text == "ran"
