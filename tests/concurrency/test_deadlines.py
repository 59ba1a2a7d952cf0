"""`Deadlines`: the times of many things, with one timer for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from mcp_toolset.concurrency.tasks import Deadlines

pytestmark = pytest.mark.anyio

SOON, NEVER = 0.02, 1000.0


class Late:
    """What was late, and a wait for so many."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.deadlines = Deadlines[str](self._take)
        self._changed = anyio.Event()

    def _take(self, one: str) -> None:
        self.found.append(one)
        self._changed.set()

    async def wait(self, count: int) -> None:
        with anyio.fail_after(30):
            while len(self.found) < count:
                self._changed = anyio.Event()
                await self._changed.wait()


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The timers that the event loop was given."""
    made: list[float] = []
    call_at = asyncio.BaseEventLoop.call_at

    def counted(loop: Any, when: float, *rest: Any, **more: Any) -> Any:
        made.append(when)
        return call_at(loop, when, *rest, **more)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_at", counted)
    return made


async def test_things_that_end_in_time_share_one_timer(timers: list[float]) -> None:
    deadlines = Deadlines[int](lambda one: None)
    before = len(timers)
    for one in range(100):
        deadlines.begin(one, NEVER)
        deadlines.end(one)
    assert len(timers) - before == 1
    deadlines.stop()


async def test_what_has_ended_is_not_late_and_the_rest_is() -> None:
    late = Late()
    late.deadlines.begin("ended", SOON)
    late.deadlines.begin("long", NEVER)
    late.deadlines.begin("first", SOON)
    late.deadlines.begin("second", 2 * SOON)
    late.deadlines.end("ended")
    await late.wait(2)
    assert late.found == ["first", "second"]
    late.deadlines.stop()


async def test_a_shorter_time_than_all_before_is_kept() -> None:
    late = Late()
    late.deadlines.begin("long", NEVER)
    late.deadlines.begin("short", SOON)
    await late.wait(1)
    assert late.found == ["short"]
    late.deadlines.stop()


async def test_what_is_late_may_be_given_more_time() -> None:
    late = Late()

    def again(one: str) -> None:
        late.found.append(one)
        if len(late.found) < 3:
            deadlines.begin(one, SOON)
        else:
            done.set()

    done, deadlines = anyio.Event(), Deadlines(again)
    deadlines.begin("slow", SOON)
    with anyio.fail_after(30):
        await done.wait()
    assert late.found == ["slow"] * 3


async def test_nothing_is_late_after_a_stop() -> None:
    late, other = Late(), Late()
    late.deadlines.begin("stopped", SOON)
    late.deadlines.stop()
    other.deadlines.begin("later", 2 * SOON)
    await other.wait(1)
    assert not late.found


def test_the_timer_of_an_event_loop_that_has_ended_holds_up_nothing() -> None:
    found: list[str] = []
    deadlines = Deadlines(found.append)

    async def begin(one: str, times: int) -> None:
        deadlines.begin(one, SOON)
        with anyio.fail_after(30):
            while len(found) < times:  # noqa: ASYNC110
                await anyio.sleep(SOON)

    anyio.run(begin, "left", 0)
    anyio.run(anyio.sleep, 2 * SOON)
    anyio.run(begin, "next", 2)
    assert found == ["left", "next"]
