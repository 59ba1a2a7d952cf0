import threading
from typing import Any

import anyio
import pytest
from tests.support.calling import tool_table

from mcp_toolset import ToolCall, ToolResult, tool
from mcp_toolset.middleware import Timeout

pytestmark = pytest.mark.anyio


class Slow:
    """Tools that never end by themselves, and know what became of them."""

    def __init__(self) -> None:
        self.cancelled = anyio.Event()
        self.release = threading.Event()
        self.late: list[str] = []

    def dispatch(self, timeout: Timeout) -> Any:
        @tool
        async def hang() -> str:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
            raise AssertionError

        @tool
        def block() -> str:
            assert self.release.wait(5)
            self.late.append("done")
            return "late"

        @tool
        async def quick() -> str:
            return "here"

        return tool_table([hang.bind(), block.bind(), quick.bind()], middleware=[timeout])

    async def call(self, limit: Timeout, name: str) -> ToolResult:
        with anyio.fail_after(30):
            return await self.dispatch(limit).call(ToolCall(name, {}))


async def test_n8_a_tool_that_hangs_is_cancelled_and_the_error_names_tool_and_seconds():
    slow = Slow()
    result = await slow.call(Timeout(0.01), "hang")
    assert result.is_error and result.text == "hang gave no answer within 0.01 s and was stopped"
    assert slow.cancelled.is_set()


async def test_n8_the_late_result_of_a_sync_tool_is_dropped():
    slow = Slow()
    try:
        result = await slow.call(Timeout(0.01), "block")
        assert result.is_error and "block gave no answer" in result.text
        assert slow.late == []
    finally:
        slow.release.set()


async def test_n8_a_tool_in_time_is_not_touched():
    assert (await Slow().call(Timeout(5), "quick")).text == "here"


async def test_a11_a_tool_may_have_a_limit_of_its_own_or_none():
    result = await Slow().call(Timeout(60, per_tool={"hang": 0.02}), "hang")
    assert "within 0.02 s" in result.text
    slow = Slow()
    with anyio.move_on_after(0.05) as outer:
        await slow.dispatch(Timeout(0.001, per_tool={"hang": None})).call(ToolCall("hang", {}))
    assert outer.cancelled_caught and slow.cancelled.is_set()


async def test_n8_cancellation_from_outside_is_not_taken_for_a_timeout():
    slow, results = Slow(), list[ToolResult]()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await slow.call(Timeout(4), "hang"))

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert results == [] and slow.cancelled.is_set()


async def test_n8_a_timeout_error_of_the_tool_is_the_tools_own():
    @tool
    async def fetch() -> str:
        raise TimeoutError("the database is slow")

    dispatch = tool_table([fetch.bind()], middleware=[Timeout(5)])
    assert (await dispatch.call(ToolCall("fetch", {}))).text == "fetch failed: the database is slow"
