"""What is read of the bodies of one server at once, for clients that do not read."""

from __future__ import annotations

import anyio
import pytest
from tests.faults.test_unread import Slow, caller_of
from tests.transports.client.raw_server import HttpClient, Meter

from mcp_toolset.transports.pacing import Intake
from mcp_toolset.transports.requests import calling
from mcp_toolset.upstream.session import UpstreamSession
from mcp_toolset.upstream.target import link_to

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


class Body:
    """A body of several chunks of a megabyte, and how many of them were read."""

    def __init__(self, chunks: int) -> None:
        self.chunks, self.read = chunks, 0

    async def into(self, meter: Meter) -> None:
        try:
            for _ in range(self.chunks):
                self.read += 1
                await meter.room(MB)
                await anyio.lowlevel.checkpoint()
        finally:
            meter.give_back()


async def test_u40_bodies_beyond_the_budget_are_read_one_at_a_time_and_all_of_them() -> None:
    intake = Intake(4 * MB)
    bodies = [Body(3) for _ in range(6)]
    sizes = list[int]()

    async def watch() -> None:
        while True:
            sizes.append(intake.size)
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as watching:
            watching.start_soon(watch)
            async with anyio.create_task_group() as group:
                for body in bodies:
                    group.start_soon(body.into, Meter(intake))
            watching.cancel_scope.cancel()
    # The budget, and one body.
    assert max(sizes) <= 7 * MB and intake.size == 0
    assert [body.read for body in bodies] == [3] * 6


async def test_u40_bodies_wait_until_the_client_of_those_before_has_room() -> None:
    intake, client = Intake(4 * MB), Slow()
    bodies = [Body(3) for _ in range(4)]
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for body in bodies:
                calling.set(caller_of(client))
                group.start_soon(body.into, Meter(intake))
            await anyio.wait_all_tasks_blocked()
            assert sum(body.read for body in bodies) <= 9
            assert intake.waiting > 0
            client.gate.set()
    assert [body.read for body in bodies] == [3] * 4
    assert intake.waiting == 0


async def test_u115_deadlines_run_again_once_a_slow_client_has_room() -> None:
    intake, client = Intake(4 * MB), Slow()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                calling.set(caller_of(client))
                group.start_soon(Body(3).into, Meter(intake))
            await anyio.wait_all_tasks_blocked()
            assert intake.paced
            client.gate.set()
    assert not intake.paced


async def test_u40_a_read_that_is_cancelled_makes_way_for_the_next() -> None:
    intake = Intake(1)
    first = Meter(intake)
    with anyio.fail_after(30):
        await first.room(MB)
        async with anyio.create_task_group() as group:
            group.start_soon(Body(2).into, Meter(intake))
            await anyio.wait_all_tasks_blocked()
            assert intake.waiting == 1
            group.cancel_scope.cancel()
        first.give_back()
        await Body(2).into(Meter(intake))
    assert intake.size == intake.waiting == 0


@pytest.mark.parametrize("is_paced", [False, True])
async def test_u40_a_server_whose_answers_are_not_read_is_not_called_silent(is_paced: bool) -> None:
    client = HttpClient("up", "http://127.0.0.1:1/mcp", {})
    client._intake.paced = is_paced
    session = UpstreamSession(link_to("http://127.0.0.1:1/mcp", name="up"))
    session.dispatcher = client
    assert session.is_read is not is_paced
