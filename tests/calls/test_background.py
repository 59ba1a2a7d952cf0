"""Background work has an owner, a bound and an end (H4, F44)."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from mcp_toolset.errors import CallError, DefinitionError, StateError
from mcp_toolset.rounds import BackgroundWork

pytestmark = pytest.mark.anyio


async def answer(value: int) -> int:
    return value


async def test_h4_work_ends_with_the_block_that_owns_it():
    ended = anyio.Event()

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(30):
        async with BackgroundWork() as work:
            id = work.start(hang)
            with pytest.raises(StateError):
                await work.__aenter__()
            await anyio.lowlevel.checkpoint()
    assert ended.is_set()
    with pytest.raises(CallError, match="was stopped"):
        await work.result(id)
    with pytest.raises(StateError, match="async with"):
        work.start(hang)


async def test_h4_what_the_block_raises_leaves_it_as_it_is():
    with pytest.raises(KeyError):
        async with BackgroundWork() as work:
            work.start(anyio.sleep_forever)
            raise KeyError("own")


async def test_h4_nobody_awaits_or_stops_the_work_of_another():
    async with BackgroundWork() as work:
        mine, other = work.owned_by("me"), work.owned_by("you")
        id = mine.start(answer, 1)
        with pytest.raises(CallError, match="no background work"):
            await other.result(id)
        with pytest.raises(CallError, match="no background work"):
            other.cancel(id)
        assert await mine.result(id, timeout=30) == 1


@pytest.mark.parametrize("fault", [RuntimeError("broken"), SystemExit(3), TimeoutError()])
async def test_h4_a_work_that_fails_says_so_and_its_siblings_go_on(fault: BaseException):
    async def fail() -> None:
        raise fault

    async with BackgroundWork() as work:
        failing, fine = work.start(fail), work.start(answer, 2)
        with pytest.raises(CallError, match=f"failed: {str(fault) or type(fault).__name__}"):
            await work.result(failing, timeout=30)
        assert await work.result(fine, timeout=30) == 2


async def test_h4_work_is_bounded_in_number_and_time_and_can_be_stopped():
    async with BackgroundWork(max_running=2) as work:
        first, _ = work.start(anyio.sleep_forever), work.start(anyio.sleep_forever)
        with pytest.raises(CallError, match="2 works are running"):
            work.start(answer, 1)
        work.cancel(first)
        with pytest.raises(CallError, match="was stopped"):
            await work.result(first, timeout=30)
        assert await work.result(work.start(answer, 3), timeout=30) == 3
    async with BackgroundWork(timeout=0.01) as work:
        with pytest.raises(CallError, match="failed: TimeoutError"):
            await work.result(work.start(anyio.sleep_forever), timeout=30)
    with pytest.raises(DefinitionError):
        BackgroundWork(max_running=0)


async def test_h4_a_cancelled_waiter_leaves_the_work_alone():
    release = anyio.Event()

    async def wait() -> str:
        await release.wait()
        return "done"

    async with BackgroundWork() as work:
        id = work.start(wait)
        with anyio.move_on_after(0.01):
            await work.result(id)
        release.set()
        assert await work.result(id, timeout=30) == "done"


async def test_h4_work_that_awaits_what_was_cancelled_fails_alone():
    async def own() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with anyio.fail_after(30):
        async with BackgroundWork() as work:
            with pytest.raises(CallError, match="failed: it awaited something that was cancelled"):
                await work.result(work.start(own))
            assert await work.result(work.start(answer, 1)) == 1
