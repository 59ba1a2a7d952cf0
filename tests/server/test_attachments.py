"""Toolsets that join and leave a running server, and what clients see and call meanwhile (H8, H24)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from tests.support.served import listening

from mcp_toolset import (
    HookSet,
    Reject,
    RemoteToolset,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolsetError,
    ToolsetServer,
    tool,
)
from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.errors import InvalidStateError, NameConflictError, StateError, UnknownToolError
from mcp_toolset.middleware import CallNext, tool_middleware

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def greet() -> str:
    """Greet."""
    return "hi"


def upstream(*names: str, version: str = "1", gate: anyio.Event | None = None) -> Server[Any]:
    """A server in this process; the tool `held` waits for `gate`."""

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        )

    async def on_call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "held" and gate is not None:
            await gate.wait()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"{params.name} of {version}")]
        )

    return Server("up", on_list_tools=on_list, on_call_tool=on_call)


def remote(name: str, *tools: str, **options: Any) -> RemoteToolset:
    return RemoteToolset(upstream(*tools, **options), name=name)


def names(server: ToolsetServer) -> list[str]:
    return [shown["name"] for shown in server.tools()]


@asynccontextmanager
async def told(server: ToolsetServer, mode: Any = "legacy") -> AsyncGenerator[tuple[Client, list[int]]]:
    """A client, and a list that grows by one with every change that it is told about."""
    news: list[int] = []

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            news.append(1)

    async with Client(server.lowlevel, mode=mode, message_handler=hear) as client:
        await client.list_tools()
        yield client, news


async def until(condition: Any) -> None:
    with anyio.fail_after(40):
        while not condition():
            await anyio.wait_all_tasks_blocked()


async def test_h24_a_mount_joins_and_leaves_a_running_server_and_clients_are_told_once_each() -> None:
    async with ToolsetServer(Toolset(add)) as server, told(server) as (client, news):
        late = remote("late", "log", "diff")
        with anyio.fail_after(40):
            handle = await server.attach(late.prefixed("git"))
        assert names(server) == ["add", "git_log", "git_diff"]
        assert server.statuses()["late"].state == "ready"
        await until(lambda: news == [1])
        assert [one.name for one in (await client.list_tools()).tools] == names(server)
        assert (await server.call_tool("git_log")).text == "log of 1"
        with anyio.fail_after(40):
            await server.detach(handle)
        assert names(server) == ["add"] and late.status.state == "closed"
        assert server.statuses() == {}
        await until(lambda: news == [1, 1])
        with pytest.raises(UnknownToolError):
            await server.call_tool("git_log")
        with pytest.raises(StateError, match="was not attached to this server, or has been detached"):
            await server.detach(handle)


async def test_h8_a_toolset_is_replaced_under_its_handle_and_opt_outs_stay() -> None:
    async with ToolsetServer(Toolset(add)) as server:
        handle = await server.attach(remote("git", "log", "reset"))
        await server.choose({"reset": False})
        assert names(server) == ["add", "log"]
        await server.replace(handle, remote("git", "reset", "log", "diff", version="2"))
        assert names(server) == ["add", "log", "diff"]
        assert (await server.call_tool("log")).text == "log of 2"
        with pytest.raises(NameConflictError, match="'add'"):
            await server.replace(handle, Toolset(add))
        assert (await server.call_tool("diff")).text == "diff of 2"
        await server.detach(handle)
        again = await server.attach(remote("git", "log", "reset", version="3"))
        assert names(server) == ["add", "log"]
        await server.choose({"reset": True})
        assert (await server.call_tool("reset")).text == "reset of 3"
        await server.detach(again)


async def test_f14_a_call_under_way_ends_on_the_toolset_that_it_began_with() -> None:
    gate = anyio.Event()
    results: list[str] = []
    async with ToolsetServer(Toolset(add)) as server:
        old = remote("git", "held", gate=gate)
        handle = await server.attach(old)

        async def call() -> None:
            results.append((await server.call_tool("held")).text)

        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                group.start_soon(server.replace, handle, remote("git", "held", "new", version="2"))
                await until(lambda: "new" in names(server))
                assert (await server.call_tool("held")).text == "held of 2"
                assert results == []
                gate.set()
        assert results == ["held of 1"] and old.status.state == "closed"


async def test_f14_calls_that_take_too_long_do_not_keep_a_toolset_for_ever() -> None:
    results: list[ToolResult] = []
    async with ToolsetServer(Toolset(add)) as server:
        left = remote("git", "held", gate=anyio.Event())
        handle = await server.attach(left)

        async def call() -> None:
            results.append(await server.call_tool("held"))

        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                await server.detach(handle, drain=0.05)
        assert results[0].is_error and left.status.state == "closed"


async def test_h7_a_tool_that_leaves_is_refused_from_that_moment() -> None:
    async with ToolsetServer(Toolset(add, remote("git", "log"))) as server:
        server.registry.disable("log")
        # Nothing has been awaited yet: the table that is served still has it.
        with pytest.raises(UnknownToolError):
            await server.call_tool("log")
        await until(lambda: names(server) == ["add"])
        server.registry.enable("log")
        await until(lambda: names(server) == ["add", "log"])


async def test_h7_a_deferred_tool_that_was_granted_is_refused_once_it_is_no_member() -> None:
    async with ToolsetServer(Toolset(add, remote("git", "log").deferred())) as server:
        found = await server.call_tool("resolve_tools", {"ids": ["log"]})
        assert found.structured is not None
        grant = {"grant": found.structured["tools"][0]["grant"]}
        assert (await server.call_tool("call_tool", grant)).text == "log of 1"
        server.registry.disable("log")
        with pytest.raises(ToolsetError):
            await server.call_tool("log")
        try:
            assert (await server.call_tool("call_tool", grant)).is_error
        except UnknownToolError:
            pass
        with pytest.raises(UnknownToolError):
            await server.call_as_host("log")


async def test_h8_the_surface_of_a_deferred_catalog_comes_and_goes_with_what_is_deferred() -> None:
    async with ToolsetServer(Toolset(add)) as server:
        handle = await server.attach(remote("git", "log").deferred())
        assert names(server)[0] == "add" and "search_tools" in names(server)
        assert [hit.name for hit in server.search("log")] == ["log"]
        await server.detach(handle)
        assert names(server) == ["add"] and server.search("log") == []


async def test_h9_a_toolset_that_cannot_join_is_not_opened_and_changes_nothing() -> None:
    @tool
    def search_tools() -> str:
        """Mine."""
        return ""

    async with ToolsetServer(Toolset(add, remote("git", "log").deferred())) as server:
        before = server.registry.snapshot(), names(server)
        second = remote("git", "x")
        for wrong, message in (
            (second, "two mounts are named 'git'"),
            (Toolset(add), "two tools are named 'add'"),
            (search_tools, "deferred catalog"),
        ):
            with pytest.raises(NameConflictError, match=message):
                await server.attach(wrong)
        assert (server.registry.snapshot(), names(server)) == before
        assert second.status.state == "closed"
        handle = await server.attach(greet)
        assert (await server.call_tool("greet")).text == "hi"
        await server.detach(handle)
    with pytest.raises(StateError, match="while the server is open"):
        await server.attach(remote("late", "x"))


async def test_h24_an_attached_server_that_is_down_is_a_status_and_joins_later() -> None:
    async with ToolsetServer(Toolset(add)) as server:
        with anyio.fail_after(40):
            handle = await server.attach(RemoteToolset(["no-such-program"], name="down"))
        assert server.statuses()["down"].state == "offline"
        assert names(server) == ["add"]
        await server.detach(handle)


async def test_h24_what_is_attached_is_closed_with_the_server_and_a_toolset_is_open_once() -> None:
    late = remote("late", "log")
    async with ToolsetServer(Toolset(add)) as server:
        await server.attach(late)
        async with ToolsetServer(Toolset(add)) as other:
            with pytest.raises(StateError, match="open"):
                await other.attach(late)
            assert names(other) == ["add"]
    assert late.status.state == "closed" and server.registry.names == ("add",)
    async with server:
        assert names(server) == ["add"]


@pytest.mark.needs("dynamic_tools")
async def test_h8_a_cancelled_attach_leaves_nothing_open() -> None:
    from mcp_toolset import DynamicToolset, ToolProvider

    class Slow(ToolProvider):
        async def list_definitions(self) -> Any:
            await anyio.sleep_forever()

        async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
            raise AssertionError

    slow = DynamicToolset(Slow(), name="slow")
    async with ToolsetServer(Toolset(add)) as server:
        with anyio.move_on_after(0.05):
            await server.attach(slow)
        await until(lambda: slow.status.state == "closed")
        assert server.statuses() == {} and names(server) == ["add"]


@pytest.mark.needs("dynamic_tools")
async def test_h8_a_dynamic_provider_joins_with_the_tools_that_it_has() -> None:
    from mcp_toolset import DynamicToolset, ToolProvider

    class Lights(ToolProvider):
        names: list[str] = ["on"]

        async def list_definitions(self) -> Any:
            return [ToolDefinition(name) for name in self.names]

        async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
            return ToolResult.of_text(call.name)

    lights = DynamicToolset(Lights(), name="lights")
    async with ToolsetServer(Toolset(add)) as server:
        handle = await server.attach(lights)
        assert names(server) == ["add", "on"]
        Lights.names = ["off"]
        lights.changed()
        await until(lambda: names(server) == ["add", "off"])
        await server.detach(handle)


async def test_h7_membership_changed_in_another_thread_is_served_and_told() -> None:
    async with ToolsetServer(Toolset(add, remote("git", "log"))) as server, told(server) as (_, news):
        thread = threading.Thread(target=lambda: server.registry.disable("log"))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        await until(lambda: names(server) == ["add"] and news == [1])


async def test_f16_a_guard_still_guards_a_tool_that_had_to_be_renamed() -> None:
    hooks = HookSet()

    @hooks.execution("wipe")
    async def never(call: ToolCall, input: Any) -> Reject:
        return Reject("not here")

    seen: list[str] = []

    @tool_middleware
    async def watch(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(call.name)
        return await next(call)

    tools = Toolset(remote("one", "wipe"), remote("two", "wipe"), Tool.from_schema("my.wipe", {}, _dotted))
    server = ToolsetServer(tools, hooks=hooks, tool_middleware={"wipe": [watch], "my.wipe": [watch]})
    hooks.execution("my.wipe")(never)
    async with server:
        assert len(set(names(server))) == 3
        for name in names(server):
            assert (await server.call_tool(name)).text == "Rejected: not here"
        assert seen == names(server)


async def _dotted(arguments: dict[str, Any]) -> str:
    return "ran"


async def test_h11_names_and_membership_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "state.json"

    def server() -> ToolsetServer:
        return ToolsetServer(Toolset(add, remote("a", "x", "y"), remote("b", "x")), state=path)

    async with server() as first:
        seen = names(first)
        await first.choose({"y": False})
        generation = first.registry.generation
    assert json.loads(path.read_text())["generation"] == generation
    async with server() as second:
        assert names(second) == [name for name in seen if name != "y"]
        assert second.registry.generation >= generation
    # A server that is gone takes its names and opt-outs along, and gets them back.
    async with ToolsetServer(Toolset(add, remote("b", "x")), state=path) as third:
        assert names(third) == ["add", seen[-1]]
        assert {key.source for key in third.registry.orphaned} == {"a"}
        await third.attach(remote("a", "x", "y"))
        assert set(names(third)) == {name for name in seen if name != "y"}


async def test_f37_a_corrupt_state_file_stops_the_start_is_named_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"format": "other"}')
    mount = remote("a", "x")
    with pytest.raises(InvalidStateError, match=str(path)):
        async with ToolsetServer(Toolset(mount), state=path):
            raise AssertionError("opened")
    assert path.read_text() == '{"format": "other"}' and mount.status.state == "closed"
    with pytest.raises(InvalidStateError, match="choose a folder that is there"):
        async with ToolsetServer(Toolset(mount), state=tmp_path / "absent" / "state.json"):
            raise AssertionError("opened")


async def test_h10_a_server_that_shares_its_state_file_goes_on_when_another_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.json"
    async with ToolsetServer(Toolset(add), state=path) as server:
        saved = RegistryState.from_json(path.read_text())
        path.write_text(RegistryState(saved.generation + 5, saved.tools).to_json())
        with caplog.at_level(logging.WARNING, "mcp_toolset.registry"):
            await server.choose({"add": False})
            await until(lambda: "is not saved any more" in caplog.text)
        assert names(server) == []
        with pytest.raises(UnknownToolError):
            await server.call_tool("add")
    assert RegistryState.from_json(path.read_text()).generation == saved.generation + 5


SESSIONS = 6
ROUNDS = 6


async def churn(server: ToolsetServer, done: anyio.Event) -> None:
    """Mounts that come, change and go while clients list and call."""
    for number in range(ROUNDS):
        one = await server.attach(remote("one", "x", "held", version=f"{number}"))
        two = await server.attach(remote("two", "x", "y"))
        await server.choose({"y": number % 2 == 0})
        await server.replace(one, remote("one", "x", version=f"{number}b"))
        await server.detach(two if number % 3 else one)
        await server.detach(one if number % 3 else two)
    done.set()


async def use(client: Client, done: anyio.Event, seen: list[int]) -> None:
    """List and call what is listed; every answer is that of the tool that was called, or a refusal."""
    while not done.is_set():
        listed = [one.name for one in (await client.list_tools()).tools]
        assert len(listed) == len(set(listed)) and "add" in listed
        for name in listed:
            if name == "add":
                result = await client.call_tool("add", {"a": 20, "b": 22})
                assert result.structured_content == {"result": 42}
                continue
            try:
                result = await client.call_tool(name, {})
            # The tool may have gone since it was listed.
            except Exception as fault:
                assert "Unknown tool" in str(fault)
                continue
            (block,) = result.content
            assert isinstance(block, types.TextContent)
            own = "held" if "held" in name else "y" if name == "y" else "x"
            assert result.is_error or block.text.startswith(f"{own} of ")
            seen.append(1)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_h8_h24_many_sessions_in_memory_list_and_call_while_sources_come_and_go(mode: Any) -> None:
    await many_sessions(mode)


@pytest.mark.long
async def test_h8_h24_many_sessions_over_http_list_and_call_while_sources_come_and_go() -> None:
    await many_sessions("auto", over_http=True)


async def many_sessions(mode: Any, over_http: bool = False) -> None:
    done, seen = anyio.Event(), list[int]()
    async with ToolsetServer(Toolset(add)) as server:

        async def session(target: Any) -> None:
            async with Client(target, mode=mode) as client:
                await use(client, done, seen)

        with anyio.fail_after(60):
            async with AsyncExitStack() as stack:
                target: Any = server.lowlevel
                if over_http:
                    target = f"{await stack.enter_async_context(listening(server.http_app()))}/mcp"
                async with anyio.create_task_group() as group:
                    for _ in range(SESSIONS):
                        group.start_soon(session, target)
                    await churn(server, done)
        assert seen and names(server) == ["add"] and server.statuses() == {}
        # Nobody decided about names; after all that, the first of them are plain again.
        await server.attach(remote("one", "x"))
        assert names(server) == ["add", "x"]
