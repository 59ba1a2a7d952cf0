"""Rates and results that several processes share: what is asked of the store, and what happens without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.support.calling import tool_table
from tests.support.far_store import FarLimits, FarStore

from mcp_toolset import Halt, ToolCall, ToolResult, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import RateLimit, ResultCache
from mcp_toolset.shared import Entry, Put

pytestmark = [pytest.mark.anyio, pytest.mark.needs("limits", "result_cache")]
LONG = 1e9


class Desk:
    """One process: a tool under one middleware."""

    def __init__(self, layer: Any) -> None:
        self.ran = 0

        @tool(read_only=True)
        async def look(number: int) -> dict[str, int]:
            self.ran += 1
            return {"number": number}

        self.dispatch = tool_table([look.bind()], middleware=[layer])

    async def look(self, number: int = 1) -> ToolResult:
        with anyio.fail_after(30):
            return await self.dispatch.call(ToolCall("look", {"number": number}))


async def let_through(desk: Desk, calls: int) -> int:
    async with anyio.create_task_group() as group:
        for _ in range(calls):
            group.start_soon(desk.look)
    return desk.ran


async def test_p9_two_servers_share_one_rate_and_never_spend_more(port: int, space: str):
    limits = [FarLimits(port, space) for _ in range(2)]
    desks = [
        Desk(RateLimit(20, LONG, store=far, lease=n, store_timeout=30))
        for far, n in zip(limits, (1, 7), strict=True)
    ]
    assert await let_through(desks[0], 15) == 15
    assert await let_through(desks[1], 15) == 5
    refused = await desks[0].look()
    assert refused.is_error and "limited to 20 calls" in refused.text and "try again in 7 s" in refused.text


async def test_p9_leased_tokens_are_used_without_a_request_and_lapse(port: int, space: str):
    now, store = 0.0, FarLimits(port, space)
    desk = Desk(RateLimit(10, 10.0, store=store, lease=4, store_timeout=30, clock=lambda: now))
    assert await let_through(desk, 4) == 4
    assert store.asked == ["take_tokens"]
    await desk.look()
    now += 4.0
    await desk.look()
    assert store.asked == ["take_tokens"] * 3, "what was left of the second lease has lapsed"
    assert not (await desk.look()).is_error
    assert (await desk.look()).is_error and desk.ran == 7


async def test_p9_a_store_of_limits_that_cannot_be_reached_refuses_and_is_named(unreachable: int, space: str):
    desk = Desk(RateLimit(10, LONG, store=FarLimits(unreachable, space), store_timeout=0.05))
    refused = await desk.look()
    assert refused.is_error and desk.ran == 0
    assert f"the limit cannot be checked: grants of {space}: " in refused.text


async def test_p9_a_store_that_gives_more_than_was_wanted_is_not_believed(port: int, space: str):
    class Generous(FarLimits):
        async def tokens(self, *_: Any, **__: Any) -> tuple[int, float]:
            return 100, 0.0

    refused = await Desk(RateLimit(10, LONG, store=Generous(port, space))).look()
    assert refused.is_error and "100 tokens of 1 wanted" in refused.text


@pytest.mark.parametrize("wrong", [{"lease": 0}, {"lease": 11}, {"store_timeout": 0}])
def test_p9_a_lease_fits_its_bucket(wrong: dict[str, Any]):
    with pytest.raises(DefinitionError, match="RateLimit: "):
        RateLimit(10, 1, **wrong)


async def test_p9_two_servers_share_results_and_a_warm_call_asks_nobody(port: int, space: str):
    stores = [FarStore(port, space), FarStore(port, space)]
    first, second = (Desk(ResultCache(60, store=store, store_timeout=30)) for store in stores)
    assert (await first.look(3)).structured == {"number": 3}
    assert stores[0].asked == ["get", "write"]
    for _ in range(3):
        assert (await second.look(3)).structured == {"number": 3}
    assert (first.ran, second.ran) == (1, 0)
    assert stores[1].asked == ["get"]


async def test_p9_a_result_that_asks_the_loop_to_stop_is_not_shared(port: int, space: str):
    @tool(read_only=True)
    async def last() -> Halt:
        return Halt("enough", "done")

    store = FarStore(port, space)
    dispatch = tool_table([last.bind()], middleware=[ResultCache(60, store=store, store_timeout=30)])
    assert (await dispatch.call(ToolCall("last", {}))).halt is not None
    assert (await dispatch.call(ToolCall("last", {}))).halt is not None
    assert store.asked == ["get"]


async def test_p9_a_shared_result_lives_no_longer_than_where_it_was_made(port: int, space: str):
    now = 0.0
    store = FarStore(port, space)
    desk = Desk(ResultCache(60, store=store, store_timeout=30, clock=lambda: now))
    await desk.look()
    ((shelf, name),) = await store.ask("places")
    (entry,) = await store.get((shelf, name))
    assert entry is not None
    kept = json.loads(entry.value)
    await store.write(Put(shelf, name, json.dumps({**kept, "ends": kept["ends"] - 61}).encode()))
    now += 60
    await desk.look()
    assert desk.ran == 2


@pytest.mark.parametrize("kept", [b"no json", b"{}", b'{"ends": 9e9, "result": {"content": 3}}', b"[]"])
async def test_p9_what_cannot_be_read_is_not_there(port: int, space: str, kept: bytes):
    class Broken(FarStore):
        async def get(self, *places: Any) -> Sequence[Entry | None]:
            return [Entry(kept, 1)]

    desk = Desk(ResultCache(60, store=Broken(port, space), store_timeout=30))
    assert (await desk.look(3)).structured == {"number": 3}


async def test_p9_without_its_store_a_cache_runs_the_tool_and_asks_no_more_for_a_while(
    unreachable: int, space: str, caplog: pytest.LogCaptureFixture
):
    now, store = 0.0, FarStore(unreachable, space)
    desk = Desk(ResultCache(60, store=store, store_timeout=0.05, clock=lambda: now))
    for number in range(3):
        assert not (await desk.look(number)).is_error
    assert desk.ran == 3 and store.asked == ["get"]
    assert store.name in caplog.text
    now += 10.0
    await desk.look(9)
    assert store.asked == ["get"] * 2
