"""Big catalogs are compiled beside what is served: others are answered meanwhile, whatever the size."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.lowlevel
import pytest

from mcp_toolset import ToolBinding, Toolset, ToolsetServer, tool
from mcp_toolset.concurrency.tasks import BIG, in_worker


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

    with anyio.fail_after(40):
        async with anyio.create_task_group() as group:
            group.start_soon(call_over_and_over)
            assert await in_worker(work) == 7


@pytest.mark.anyio
async def test_what_work_raises_comes_out_as_it_is() -> None:
    def fail() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        await in_worker(fail)


def numbered(count: int) -> Toolset:
    async def run() -> str:
        """Run."""
        return "ran"

    return Toolset(*(tool(name=f"t{number}")(run) for number in range(count)))


@pytest.mark.parametrize(("count", "elsewhere"), [(3, False), (BIG + 1, True)])
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
