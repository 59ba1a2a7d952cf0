"""Each replica answers about the tasks of all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import CallError
from mcp_toolset.extensions.tasks.tasks import TaskRecords
from mcp_toolset.shared import SharedState

pytestmark = [pytest.mark.anyio, pytest.mark.needs("tasks")]


@asynccontextmanager
async def replica(url: str, toolset: Toolset) -> AsyncGenerator[RawClient]:
    server = ToolsetServer(toolset, shared=SharedState(url, timeout=30), capabilities=["ask"], keep=False)
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            await server.settled()
            yield client


async def test_j3_a_replica_asks_the_one_that_has_a_task(url: str) -> None:
    from tests.extensions.tasks.jobs import Jobs, about, call, until

    jobs = Jobs()
    async with replica(url, jobs.toolset()) as one, replica(url, Jobs().toolset()) as other:
        id = (await call(one, "greet"))["taskId"]
        state = await until(other, id, "input_required")
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in state["inputRequests"]}
        await about(other, "tasks/update", id, inputResponses=answers)
        ended = await until(other, id, "completed")
        assert ended["result"]["content"][0]["text"] == "Hello, Ada!"
        works = (await call(one, "build", what="a house"))["taskId"]
        await jobs.running.wait()
        await about(other, "tasks/cancel", works)
        await until(other, works, "cancelled")
        await jobs.cancelled.wait()


async def test_j3_another_replica_goes_on_with_a_task_and_has_its_outcome(url: str) -> None:
    from tests.extensions.tasks.jobs import Jobs, about, call, until

    jobs = Jobs()
    async with jobs.server() as upstream:

        def mounted() -> Toolset:
            return Toolset(RemoteToolset(upstream, name="jobs"))

        async with replica(url, mounted()) as one:
            id = (await call(one, "build", what="a house"))["taskId"]
        async with replica(url, mounted()) as two, replica(url, mounted()) as three:
            assert (await about(two, "tasks/get", id))["status"] == "working"
            jobs.go.set()
            assert (await until(two, id, "completed"))["result"]["content"][0]["text"] == "built a house"
            await until(three, id, "completed")
        async with replica(url, Toolset()) as four:
            await until(four, id, "completed")
    assert jobs.started == 1


async def test_u115_a_task_that_has_moved_goes_on_at_one_replica_alone(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.extensions.tasks.jobs import Jobs, about, call, until

    jobs = Jobs()
    caplog.set_level("INFO", "mcp_toolset.server")
    async with jobs.server() as upstream:

        def mounted() -> Toolset:
            return Toolset(RemoteToolset(upstream, name="jobs"))

        async with replica(url, mounted()) as one:
            id = (await call(one, "build", what="a house"))["taskId"]
        async with replica(url, mounted()) as two, replica(url, mounted()) as three:
            for client in (two, three, two):
                assert (await about(client, "tasks/get", id))["status"] == "working"
            jobs.go.set()
            await until(three, id, "completed")
    assert caplog.text.count("goes on here") == 1


class Silent:
    """The other replicas, none of which answers."""

    own = "1"

    def __init__(self, live: bool) -> None:
        self._live = live

    async def ask(self, *_: object, within: float) -> None:
        raise CallError(f"no answer within {within:g} s")

    async def lives(self, replica: str) -> bool:
        return self._live


async def test_u115_a_task_of_a_replica_that_lives_and_gives_no_answer_is_not_begun_again() -> None:
    from mcp_toolset.extensions.tasks.tasks import TaskRecords

    def records(live: bool) -> TaskRecords:
        shared: Any = SimpleNamespace(replicas=Silent(live))
        return TaskRecords(None, shared)

    with pytest.raises(CallError, match="the replica that has the task gave no answer"):
        await records(True).elsewhere("id", "2", "get", {})
    assert await records(False).elsewhere("id", "2", "get", {}) is None


async def test_j3_an_id_opens_for_its_owner_alone() -> None:
    from mcp_toolset.extensions.tasks.tasks import TaskRecords

    records = TaskRecords(None, None)
    id = records.seal({"name": "pay"}, "ada", 60)
    found = records.open(id, "ada")
    assert found is not None and found.data == {"name": "pay", "at": ""}
    assert records.open(id, "bob") is None and records.open(id, "") is None
    assert records.open(id[:-2] + "AA", "ada") is None and records.open("", "ada") is None
    assert records.open(records.seal({"name": "pay"}, "ada", -1), "ada") is None
    assert records.seal({"arguments": "x" * 5000}, "ada", 60) == ""
