"""The tasks of a connection end with it."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from mcp_toolset.concurrency.tasks import TaskSet

pytestmark = pytest.mark.anyio


async def test_the_end_cancels_every_task_and_waits_for_what_it_does_last() -> None:
    tasks, began, done = TaskSet(lambda: None), anyio.Event(), list[str]()

    async def work() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            done.append("cleaned up")

    with anyio.fail_after(40):
        tasks.begin(work)
        await began.wait()
        assert tasks.busy
        await tasks.end()
    assert done == ["cleaned up"] and not tasks.busy
