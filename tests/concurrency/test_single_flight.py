"""Those who want the same thing at the same time share one run; a run that is cancelled is begun anew."""

from __future__ import annotations

import anyio
import pytest

from mcp_toolset.concurrency.tasks import SingleFlight

pytestmark = pytest.mark.anyio


class Source:
    """Gives what it is asked for once it may, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may, self.began = anyio.Event(), anyio.Event()
        self.fault: Exception | None = None

    async def fetch(self) -> str:
        self.asked += 1
        self.began.set()
        await self.may.wait()
        if self.fault is not None:
            raise self.fault
        return f"answer {self.asked}"


async def several(flights: SingleFlight[str], source: Source, count: int) -> list[str | Exception]:
    found: list[str | Exception] = []

    async def one() -> None:
        try:
            found.append(await flights.run("key", source.fetch))
        except ValueError as fault:
            found.append(fault)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(one)
            await source.began.wait()
            await anyio.lowlevel.checkpoint()
            source.may.set()
    return found


async def test_those_who_ask_meanwhile_share_the_answer_and_the_next_one_asks_anew():
    flights, source = SingleFlight[str](), Source()
    assert await several(flights, source, 5) == ["answer 1"] * 5
    assert await flights.run("key", source.fetch) == "answer 2"


async def test_those_who_ask_meanwhile_share_the_fault():
    flights, source = SingleFlight[str](), Source()
    source.fault = ValueError("no")
    assert await several(flights, source, 3) == [source.fault] * 3
    assert source.asked == 1


async def test_if_the_first_is_cancelled_another_one_asks():
    flights, source = SingleFlight[str](), Source()
    found: list[str] = []
    first = anyio.CancelScope()

    async def early() -> None:
        with first:
            await flights.run("key", source.fetch)

    async def late() -> None:
        found.append(await flights.run("key", source.fetch))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(early)
            await source.began.wait()
            group.start_soon(late)
            await anyio.lowlevel.checkpoint()
            first.cancel()
            source.may.set()
    assert (found, source.asked) == (["answer 2"], 2)
