"""Tasks that outlive the process that has begun them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import DECLARED, Jobs, about, call, until
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "suspended.sqlite3"


@asynccontextmanager
async def bridge(upstream: ToolsetServer, store: Path, **options: Any) -> AsyncGenerator[RawClient]:
    """A client of a bridge that is new each time."""
    server = ToolsetServer(Toolset(RemoteToolset(upstream, name="jobs")), suspended=store, **options)
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            await server.settled()
            yield client


async def test_j3_a_task_of_a_mounted_server_goes_on_at_a_new_bridge(store: Path) -> None:
    jobs = Jobs()
    async with jobs.server() as upstream:
        async with bridge(upstream, store) as client:
            id = (await call(client, "build", what="a house"))["taskId"]
            assert (await about(client, "tasks/get", id))["status"] == "working"
        async with bridge(upstream, store) as client:
            assert (await about(client, "tasks/get", id))["status"] == "working"
        assert not jobs.cancelled.is_set()
        jobs.go.set()
        async with bridge(upstream, store) as client:
            ended = await until(client, id, "completed")
            assert ended["result"]["content"][0]["text"] == "built a house"
    assert jobs.started == 1


async def test_j3_requests_at_the_same_time_go_on_with_a_task_once(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs()
    async with jobs.server() as upstream:
        async with bridge(upstream, store) as client:
            id = (await call(client, "build", what="a house"))["taskId"]
        caplog.set_level("INFO", "mcp_toolset.server")
        async with bridge(upstream, store) as client:
            asked = [await client.begin("tasks/get", taskId=id, _meta=dict(DECLARED)) for _ in range(3)]
            for number in asked:
                answer = await client.until(lambda message, number=number: message.get("id") == number)
                assert answer["result"]["status"] == "working"
            jobs.go.set()
            await until(client, id, "completed")
    assert ["goes on here" in one.message for one in caplog.records].count(True) == 1


async def test_j3_a_question_and_a_cancel_reach_the_task_at_a_new_bridge(store: Path) -> None:
    jobs = Jobs()
    async with jobs.server() as upstream:
        async with bridge(upstream, store) as client:
            asks, works = [
                (await call(client, tool, **given))["taskId"]
                for tool, given in (("greet", {}), ("build", {"what": "a house"}))
            ]
            await until(client, asks, "input_required")
        async with bridge(upstream, store) as client:
            state = await until(client, asks, "input_required")
            answers = {
                key: {"action": "accept", "content": {"name": "Ada"}} for key in state["inputRequests"]
            }
            await about(client, "tasks/update", asks, inputResponses=answers)
            ended = await until(client, asks, "completed")
            assert ended["result"]["content"][0]["text"] == "Hello, Ada!"
            await jobs.running.wait()
            await about(client, "tasks/cancel", works)
            await until(client, works, "cancelled")
            await jobs.cancelled.wait()


async def test_j3_a_journaled_task_is_followed_and_not_begun_again(store: Path, tmp_path: Path) -> None:
    jobs, journal = Jobs(), str(tmp_path / "journal.sqlite3")
    async with jobs.server() as upstream:
        async with bridge(upstream, store, journal=journal) as client:
            id = (await call(client, "build", what="a house"))["taskId"]
        jobs.go.set()
        async with bridge(upstream, store, journal=journal) as client:
            ended = await until(client, id, "completed", "failed")
            assert ended["result"]["content"][0]["text"] == "built a house"
    assert jobs.started == 1


async def test_j3_an_own_task_that_ended_with_its_process_is_said_so(store: Path) -> None:
    def server() -> ToolsetServer:
        return ToolsetServer(Jobs().toolset(), suspended=store, capabilities=["ask"])

    async with server() as one, raw_client(one, "modern") as client:
        id = (await call(client, "build", what="a house"))["taskId"]
    async with server() as other, raw_client(other, "modern") as client:
        ended = await until(client, id, "failed")
        assert "it is not known how far it came" in ended["error"]["message"]


async def test_j3_an_outcome_is_kept_and_opens_with_its_id_alone(store: Path) -> None:
    jobs = Jobs()
    jobs.go.set()

    def server() -> ToolsetServer:
        return ToolsetServer(jobs.toolset(), suspended=store, capabilities=["ask"])

    async with server() as one, raw_client(one, "modern") as client:
        id = (await call(client, "build", what="a house"))["taskId"]
        ended = await until(client, id, "completed")
    async with server() as other, raw_client(other, "modern") as client:
        assert await until(client, id, "completed") == ended
    assert b"built a house" not in await anyio.Path(store).read_bytes()


async def test_j3_without_a_store_an_id_ends_with_its_process() -> None:
    jobs = Jobs()
    async with jobs.server() as server, raw_client(server, "modern") as client:
        id = (await call(client, "build", what="a house"))["taskId"]
    async with jobs.server() as server, raw_client(server, "modern") as client:
        assert (await about(client, "tasks/get", id))["error"]["code"] == -32602


async def test_j3_a_tool_that_has_changed_is_not_followed(store: Path) -> None:
    jobs = Jobs()
    async with jobs.server() as upstream, bridge(upstream, store) as client:
        id = (await call(client, "build", what="a house"))["taskId"]
    async with Jobs().server("Build and sell.") as other, bridge(other, store) as client:
        fault = (await about(client, "tasks/get", id))["error"]
        assert "the definition of build has changed since" in fault["message"]
    nothing = ToolsetServer(Toolset(), suspended=store)
    async with nothing, raw_client(nothing, "modern") as client:
        fault = (await about(client, "tasks/get", id))["error"]
        assert "build is not served now" in fault["message"]
