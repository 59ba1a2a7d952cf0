"""Tasks of 2025-11-25: of the server's own tools, and of mounted servers of both eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import Jobs, about, call, until
from tests.interaction.raw_client import RawClient, raw_client
from tests.support.warm import python

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

ROOT = Path(__file__).parents[3]
RELATED = "io.modelcontextprotocol/related-task"
ADA = {"action": "accept", "content": {"name": "Ada"}}
FORMS = {"elicitation": {}}


@asynccontextmanager
async def own() -> AsyncGenerator[RawClient]:
    server = Jobs().server()
    with anyio.fail_after(60):
        async with server, raw_client(server, "legacy", FORMS) as client:
            yield client


@asynccontextmanager
async def before_legacy(era: str) -> AsyncGenerator[RawClient]:
    """A client of a bridge before a server of 2025-11-25."""
    command = python("-m", "tests.extensions.tasks.legacy_jobs")
    env = {"PYTHONPATH": str(ROOT)}
    remote = RemoteToolset(command, name="jobs", protocol="legacy", cwd=ROOT, env=env)
    server = ToolsetServer(Toolset(remote))
    with anyio.fail_after(60):
        async with server, raw_client(server, era, FORMS if era == "legacy" else None) as client:
            await server.settled()
            yield client


async def begin(client: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """The task of a call."""
    found = await client.ask("tools/call", name=tool, arguments=arguments, task={"ttl": 60_000})
    assert found["task"]["status"] == "working", found
    return found["task"]


async def ended_with(client: RawClient, id: str) -> dict[str, Any]:
    return await client.ask("tasks/result", taskId=id)


async def outcomes(client: RawClient) -> None:
    """What becomes of tasks, as a client of 2025-11-25 sees it."""
    task = await begin(client, "only")
    assert task["ttl"] == 60_000 and task["pollInterval"] and "result" not in task
    result = await ended_with(client, task["taskId"])
    assert result["content"][0]["text"] == "ran as a task"
    assert result["_meta"][RELATED] == {"taskId": task["taskId"]}
    state = await client.ask("tasks/get", taskId=task["taskId"])
    assert (state["status"], state["taskId"]) == ("completed", task["taskId"])
    late = (await client.ask("tasks/cancel", taskId=task["taskId"]))["error"]
    assert late["code"] == -32602 and "has ended" in late["message"]

    task = await begin(client, "build", what="a house")
    state = await client.ask("tasks/get", taskId=task["taskId"])
    assert state["status"] == "working"
    cancelled = await client.ask("tasks/cancel", taskId=task["taskId"])
    assert cancelled["status"] == "cancelled"
    assert (await ended_with(client, task["taskId"]))["error"]["message"] == "the task was cancelled"

    task = await begin(client, "broken")
    assert "out of order" in (await ended_with(client, task["taskId"]))["error"]["message"]


async def question(client: RawClient) -> None:
    """A task that asks: the client is asked while it waits for the result."""
    task = await begin(client, "greet")
    while (await client.ask("tasks/get", taskId=task["taskId"]))["status"] != "input_required":
        await anyio.lowlevel.checkpoint()
    number = await client.begin("tasks/result", taskId=task["taskId"])
    asked = await client.until(lambda message: message.get("method") == "elicitation/create")
    assert asked["params"]["message"].endswith("Your name?")
    assert asked["params"]["_meta"][RELATED] == {"taskId": task["taskId"]}
    await client.send(id=asked["id"], result=ADA)
    ended = await client.until(lambda message: message.get("id") == number and "result" in message)
    assert ended["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_j3_a_legacy_client_runs_own_tools_as_tasks() -> None:
    async with own() as client:
        await outcomes(client)
        await question(client)


async def test_j3_a_legacy_client_runs_tools_of_a_legacy_server_as_tasks() -> None:
    async with before_legacy("legacy") as client:
        await outcomes(client)
        await question(client)
        plain = await client.ask("tools/call", name="only", arguments={})
        assert plain["content"][0]["text"] == "ran as a task" and RELATED not in (plain.get("_meta") or {})


async def test_j3_a_modern_client_runs_tools_of_a_legacy_server_as_tasks() -> None:
    async with before_legacy("modern") as client:
        found = await call(client, "build", what="a house")
        assert (found["resultType"], found["status"]) == ("task", "working")
        await about(client, "tasks/cancel", found["taskId"])
        await until(client, found["taskId"], "cancelled")
        found = await call(client, "only")
        ended = await until(client, found["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "ran as a task"
        found = await call(client, "greet")
        state = await until(client, found["taskId"], "input_required")
        (key,) = state["inputRequests"]
        await about(client, "tasks/update", found["taskId"], inputResponses={key: ADA})
        ended = await until(client, found["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_j3_a_legacy_client_is_told_which_tools_run_as_tasks() -> None:
    async with own() as client:
        tools = (await client.ask("tools/list"))["tools"]
        told = {tool["name"]: tool.get("execution") for tool in tools}
        optional = {"taskSupport": "optional"}
        assert told == {
            "build": optional,
            "greet": optional,
            "only": optional,
            "broken": optional,
            "plain": None,
        }
        refused = (await client.ask("tools/call", name="plain", arguments={}, task={}))["error"]
        assert (refused["code"], refused["message"]) == (-32601, "Tool plain does not run as a task")
        assert (await client.ask("tasks/get", taskId="none"))["error"]["code"] == -32602
        assert (await client.ask("tasks/list"))["error"]["code"] == -32601


async def test_j3_a_server_without_tasks_ignores_that_one_is_asked_for() -> None:
    server = ToolsetServer(Toolset())
    async with server, raw_client(server, "legacy") as client:
        assert (await client.ask("tasks/get", taskId="none"))["error"]["code"] == -32601
