"""What an upstream says while several calls of one client are under way, and nothing tells of which it is."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from tests.faults.harness import HERE, mount, specials

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
META = "io.modelcontextprotocol"
SAID = 3
ASKED = {"elicitation": {"form": {}}}
"""The capabilities of the client."""


class Streams:
    """A client of this process that reads what comes in the order of the streams."""

    def __init__(self, mine: Any, *, modern: bool) -> None:
        self.heard: list[Any] = []
        self.results: dict[Any, Any] = {}
        self._mine = mine
        self._modern = modern

    async def send(self, number: Any, method: str, params: dict[str, Any]) -> None:
        if self._modern:
            envelope = {"protocolVersion": "2026-07-28", "clientCapabilities": ASKED, "logLevel": "debug"}
            own = {f"{META}/{key}": value for key, value in envelope.items()}
            own |= {f"{META}/clientInfo": {"name": "raw", "version": "1"}}
            if params.get("name") == "tell":
                own["progressToken"] = number
            params = {**params, "_meta": own}
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self._mine[1].send(SessionMessage(jsonrpc_message_adapter.validate_python(request)))

    async def call(self, number: Any, name: str, **arguments: Any) -> None:
        await self.send(number, "tools/call", {"name": name, "arguments": arguments})

    async def until_answered(self, number: Any) -> None:
        while not self.heard or self.heard[-1] != number:
            message = (await self._mine[0].receive()).message.model_dump(by_alias=True, exclude_unset=True)
            if message.get("method") == "notifications/message":
                self.heard.append(message["params"]["data"])
            elif message.get("method") == "notifications/progress":
                self.heard.append((message["params"]["progressToken"], message["params"]["progress"]))
            elif "method" not in message:
                assert "result" in message, message
                self.heard.append(message["id"])
                self.results[message["id"]] = message["result"]

    async def begin(self) -> None:
        if not self._modern:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
            await self.send("hello", "initialize", {**hello, "clientInfo": {"name": "raw", "version": "1"}})
            await self.until_answered("hello")
        self.heard.clear()


@asynccontextmanager
async def in_process(server: ToolsetServer, *, modern: bool) -> AsyncGenerator[Streams]:
    async with create_client_server_memory_streams() as (mine, theirs), anyio.create_task_group() as group:
        lowlevel = server.lowlevel
        group.start_soon(lowlevel.run, *theirs, lowlevel.create_initialization_options())
        client = Streams(mine, modern=modern)
        await client.begin()
        yield client
        group.cancel_scope.cancel()


@pytest.mark.parametrize("modern_upstream", [False, True])
@pytest.mark.parametrize("modern_client", [False, True])
async def test_u70_log_messages_reach_a_client_of_this_process_with_calls_at_once(
    modern_client: bool, modern_upstream: bool
) -> None:
    upstream = mount(tools=specials("flood"), modern=modern_upstream)
    with anyio.fail_after(30):
        async with (
            ToolsetServer(Toolset(upstream)) as server,
            in_process(server, modern=modern_client) as client,
        ):
            await client.call("hanging", "hang")
            await client.call("flooded", "flood", count=SAID)
            await client.until_answered("flooded")
            assert client.heard == [*range(SAID), "flooded"]


async def test_u70_log_messages_are_not_told_to_another_client_of_this_process() -> None:
    upstream = mount(tools=specials("flood"), modern=True)
    with anyio.fail_after(30):
        async with (
            ToolsetServer(Toolset(upstream)) as server,
            in_process(server, modern=True) as one,
            in_process(server, modern=True) as other,
        ):
            await one.call("hanging", "hang")
            await one.call("first", "echo")
            await one.until_answered("first")
            await other.call("flooded", "flood", count=SAID)
            await other.until_answered("flooded")
            assert other.heard == ["flooded"]
            await one.call("last", "echo")
            await one.until_answered("last")
            assert one.heard == ["first", "last"]


async def test_u70_what_is_said_between_two_requests_of_a_call_comes_with_the_second() -> None:
    command = [sys.executable, "-S", str(HERE / "asking_stdio.py"), "legacy"]
    upstream = RemoteToolset(command, name="up", start_timeout=20)
    with anyio.fail_after(30):
        async with ToolsetServer(Toolset(upstream)) as server, in_process(server, modern=True) as client:
            await client.call("first", "tell")
            await client.until_answered("first")
            await client.call("prod", "prod")
            await client.until_answered("prod")
            asked = client.results["first"]
            answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
            state = {"requestState": asked["requestState"], "inputResponses": answers}
            await client.send("second", "tools/call", {"name": "tell", "arguments": {}, **state})
            await client.until_answered("second")
    assert client.heard == [("first", 1), "first", "prod", ("second", 2), ("second", 3), "second"]
