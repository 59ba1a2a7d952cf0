"""Clients that know no tasks use tools that run only as tasks: they wait, and hear of progress."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.extensions.tasks.jobs import NAME, Jobs, served
from tests.interaction.raw_client import raw_client

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
async def test_j3_a_client_that_knows_no_tasks_waits_for_one(era: str) -> None:
    async with served(Jobs(), mounted=True, era=era) as client:
        for _ in range(2):
            found = await client.ask("tools/call", name="only", arguments={})
            assert found["content"][0]["text"] == "ran as a task"
            assert "task" not in found


@ERAS
async def test_j3_what_a_task_is_doing_is_progress_for_a_client_that_waits(era: str) -> None:
    go = anyio.Event()

    @tool(task="required")
    async def build(context: ToolContext) -> str:
        """Build something."""
        await context.progress(1, 2, "half of it")
        await go.wait()
        return "built"

    server = ToolsetServer(Toolset(RemoteToolset(ToolsetServer(Toolset(build)), name="up")))
    with anyio.fail_after(60):
        async with server, raw_client(server, era) as client:
            number = await client.begin("tools/call", name="build", arguments={}, _meta={"progressToken": 7})
            told = await client.told("notifications/progress")
            assert (told["progressToken"], told["message"]) == (7, "half of it (1 of 2)")
            go.set()
            ended = await client.until(lambda message: message.get("id") == number)
            assert ended["result"]["content"][0]["text"] == "built"


async def test_j3_a_question_of_a_task_reaches_a_client_that_waits() -> None:
    @tool(task="required")
    async def greet(context: ToolContext) -> str:
        """Greet the user by name."""
        return f"Hello, {(await context.ask('Your name?', NAME)).content['name']}!"

    own = ToolsetServer(Toolset(greet), capabilities=["ask"])
    server = ToolsetServer(Toolset(RemoteToolset(own, name="up")))
    answer = {"action": "accept", "content": {"name": "Ada"}}
    with anyio.fail_after(60):
        async with server, raw_client(server, "legacy", {"elicitation": {}}) as client:
            number = await client.begin("tools/call", name="greet", arguments={})
            asked = await client.until(lambda message: message.get("method") == "elicitation/create")
            await client.send(id=asked["id"], result=answer)
            ended = await client.until(lambda message: message.get("id") == number)
            assert ended["result"]["content"][0]["text"] == "Hello, Ada!"
        async with server, raw_client(server, "modern") as client:
            forms = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
            asking = await client.ask("tools/call", name="greet", arguments={}, _meta=forms)
            (key,) = asking["inputRequests"]
            given = {"inputResponses": {key: answer}, "requestState": asking["requestState"]}
            ended = await client.ask("tools/call", name="greet", arguments={}, _meta=forms, **given)
            assert ended["content"][0]["text"] == "Hello, Ada!"


@ERAS
async def test_j3_a_task_that_takes_too_long_for_a_waiting_client_is_cancelled(era: str) -> None:
    cancelled = anyio.Event()

    @tool(task="required")
    async def build() -> None:
        """Build something."""
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    own = ToolsetServer(Toolset(build))
    server = ToolsetServer(Toolset(RemoteToolset(own, name="up", task_timeout=0.2)))
    with anyio.fail_after(60):
        async with server, raw_client(server, era) as client:
            found: dict[str, Any] = await client.ask("tools/call", name="build", arguments={})
            assert found["isError"] and "set a longer `task_timeout`" in found["content"][0]["text"]
            await cancelled.wait()


async def test_j3_a_program_without_a_client_waits_too() -> None:
    server = Jobs().server()
    async with Toolset(RemoteToolset(server, name="up")) as tools:
        assert (await tools.execute("only", {})).text == "ran as a task"
