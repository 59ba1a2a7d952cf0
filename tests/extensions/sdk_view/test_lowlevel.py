"""What a program puts on `ToolsetServer.lowlevel` counts at every door; it is made when it is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.shared.memory import create_client_server_memory_streams
from tests.extensions.indexed import indexed
from tests.support.asking import text_of
from tests.support.piped import answers_to, handshake, legacy, modern, piped

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio
Call = Callable[[str], Awaitable[str]]
DOORS = ["memory legacy", "memory modern", "pipes legacy", "pipes modern", "mounted"]


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@pytest.fixture
def server() -> ToolsetServer:
    return ToolsetServer(Toolset(echo), name="s")


@asynccontextmanager
async def calling(server: ToolsetServer, door: str) -> AsyncGenerator[Call]:
    """A way to call `echo` through a door."""
    way, _, era = door.partition(" ")
    with anyio.fail_after(60):
        if way == "pipes":
            async with piped(server) as peer:
                made = legacy if era == "legacy" else modern
                if era == "legacy":
                    await answers_to(peer, handshake("h"))

                async def over_pipes(text: str) -> str:
                    answers = await answers_to(
                        peer, made(1, "tools/call", name="echo", arguments={"text": text})
                    )
                    return answers[1]["result"]["content"][0]["text"]

                yield over_pipes
            return
        target = server if way == "memory" else ToolsetServer(Toolset(RemoteToolset(server, name="up")))
        async with target, Client(target.lowlevel, mode="legacy" if era == "legacy" else "auto") as client:

            async def by_client(text: str) -> str:
                return text_of(await client.call_tool("echo", {"text": text}))

            yield by_client


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("door", DOORS)
async def test_a_middleware_sees_and_changes_calls_at_every_door(
    server: ToolsetServer, door: str, place: int
) -> None:
    seen: list[str] = []

    async def louder(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        if ctx.method != "tools/call":
            return await call_next(ctx)
        arguments = {"text": ctx.params["arguments"]["text"].upper()}
        return await call_next(replace(ctx, params={**ctx.params, "arguments": arguments}))

    server.lowlevel.middleware.insert(place, louder)
    async with calling(server, door) as call:
        assert await call("hello") == "HELLO"
    assert "tools/call" in seen
    if door == "pipes legacy":
        assert seen[0] == "initialize"


async def test_middleware_of_a_program_is_called_in_order_wherever_it_is_put(server: ToolsetServer) -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def note(ctx: Any, call_next: Any) -> Any:
            seen.append(name)
            return await call_next(ctx)

        return note

    middleware: Any = server.lowlevel.middleware
    middleware.insert(0, noting("first"))
    middleware.extend((noting("second"), noting("third")))
    async with calling(server, "pipes modern") as call:
        assert await call("hello") == "hello"
    assert seen == ["first", "second", "third"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_handler_takes_the_place_of_ours_at_every_door(server: ToolsetServer, door: str) -> None:
    async def on_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = f"{params.name} by the program"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server.lowlevel.add_request_handler("tools/call", types.CallToolRequestParams, on_call)
    async with calling(server, door) as call:
        assert await call("hello") == "echo by the program"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_method_of_the_program_is_answered_on_pipes(server: ToolsetServer, era: str) -> None:
    made = legacy if era == "legacy" else modern
    first = [handshake("h")] if era == "legacy" else []
    async with piped(server) as peer:
        found = await answers_to(peer, *first, made(1, "vendor/double", number=4))
        assert found[1]["error"]["code"] == -32601

        class Params(types.RequestParams):
            number: int

        async def double(ctx: Any, params: Params) -> dict[str, Any]:
            return {"twice": 2 * params.number, "version": ctx.protocol_version}

        server.lowlevel.add_request_handler("vendor/double", Params, double)
        found = await answers_to(peer, made(2, "vendor/double", number=4), made(3, "vendor/double"))
    assert found[2]["result"]["twice"] == 8
    assert found[2]["result"]["version"] == ("2025-11-25" if era == "legacy" else "2026-07-28")
    assert found[3]["error"]["code"] == -32602


async def test_a_handler_of_the_program_asks_its_client_over_pipes(server: ToolsetServer) -> None:
    async def ask(ctx: Any, params: types.RequestParams) -> dict[str, Any]:
        roots = await ctx.session.send_request(types.ListRootsRequest(), types.ListRootsResult, metadata=None)
        return {"roots": [str(root.uri) for root in roots.roots]}

    server.lowlevel.add_request_handler("vendor/roots", types.RequestParams, ask)
    async with piped(server) as peer:
        await answers_to(peer, handshake("h", roots={}))
        await peer.send(legacy(1, "vendor/roots"))
        asked = await peer.receive()
        assert asked["method"] == "roots/list"
        result = {"roots": [{"uri": "file:///here"}]}
        await peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        assert (await peer.receive())["result"] == {"roots": ["file:///here"]}


async def test_a_notification_reaches_the_programs_handler_on_pipes(server: ToolsetServer) -> None:
    heard: list[str] = []
    came = anyio.Event()

    async def hear(ctx: Any, params: types.NotificationParams) -> None:
        heard.append(ctx.method)
        came.set()

    server.lowlevel.add_notification_handler("notifications/vendor", types.NotificationParams, hear)
    async with piped(server) as peer:
        await answers_to(peer, handshake("h"))
        await peer.send({"jsonrpc": "2.0", "method": "notifications/vendor"})
        with anyio.fail_after(30):
            await came.wait()
    assert heard == ["notifications/vendor"]


async def test_the_sdks_view_is_made_when_it_is_asked_for(server: ToolsetServer) -> None:
    async with calling(server, "pipes legacy") as call:
        assert await call("x") == "x"
    assert server.answers.program is None
    assert server.lowlevel is server.lowlevel
    assert server.answers.program is server.lowlevel
    view: Any = server.lowlevel
    assert not view.takes("tools/call")


async def test_what_the_sdks_view_says_of_the_server_is_what_the_server_says(server: ToolsetServer) -> None:
    lowlevel = server.lowlevel
    lowlevel.extensions["example/x"] = {"a": 1}
    async with piped(server) as peer:
        lowlevel.instructions = "read this"
        assert (lowlevel.name, lowlevel.create_initialization_options().instructions) == ("s", "read this")
        found = await answers_to(peer, modern(1, "server/discover"))
    assert found[1]["result"]["instructions"] == "read this"
    assert found[1]["result"]["capabilities"]["extensions"] == {"example/x": {"a": 1}}
    declared = lowlevel.get_capabilities(protocol_version="2026-07-28")
    wire = declared.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert wire == found[1]["result"]["capabilities"]


async def test_a_program_that_runs_it_over_streams_says_what_it_is_called(server: ToolsetServer) -> None:
    lowlevel = server.lowlevel
    plain = lowlevel.create_initialization_options()
    named = plain.model_copy(update={"server_name": "front", "server_version": "9.1", "title": "Front desk"})
    default = ("s", plain.server_version, None)
    for options, told in ((plain, default), (named, ("front", "9.1", "Front desk"))):
        with anyio.fail_after(60):
            async with (
                create_client_server_memory_streams() as (ours, theirs),
                anyio.create_task_group() as group,
            ):
                group.start_soon(lowlevel.run, *theirs, options)
                async with ClientSession(*ours) as client:
                    info = (await client.initialize()).server_info
                    assert (info.name, info.version, info.title) == told
                    assert text_of(await client.call_tool("echo", {"text": "here"})) == "here"
                group.cancel_scope.cancel()


def test_without_its_folder_it_is_said_how_to_have_it() -> None:
    with indexed({}), pytest.raises(DefinitionError, match="install mcp-toolset again"):
        _ = ToolsetServer(Toolset(echo)).lowlevel
