"""Membership, background work and events, for tools that are served (H4); each is somebody's to grant."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.asking import ERAS, connected, text_of

from mcp_toolset import HookSet, ToolContext, ToolDefinition, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StateError, UnknownToolError
from mcp_toolset.rounds import EventLog
from mcp_toolset.tools.call import SessionEvent

pytestmark = pytest.mark.anyio


@tool
def double(n: int) -> int:
    """Double a number."""
    return n * 2


@tool
def quiet() -> str:
    """Say nothing."""
    return ""


@tool
async def switch(name: str, on: bool, context: ToolContext, generation: int | None = None) -> int:
    """Make a tool a member, or take it out."""
    members = context.membership
    return members.change({name: on}, generation=members.generation if generation is None else generation)


def switching(*others: Any) -> ToolsetServer:
    return ToolsetServer(Toolset(switch, double, *others), capabilities=["membership"])


async def names(client: Any) -> list[str]:
    return [shown.name for shown in (await client.list_tools()).tools]


async def until_listed(client: Any, wanted: list[str]) -> None:
    with anyio.fail_after(30):
        while await names(client) != wanted:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_a_tool_that_is_taken_out_is_neither_called_nor_listed_and_may_come_back(mode: str) -> None:
    server = switching(Toolset(quiet).off())
    async with connected(server, mode) as client:
        assert await names(client) == ["switch", "double"]
        assert not (await client.call_tool("switch", {"name": "double", "on": False})).is_error
        with pytest.raises(Exception, match="double"):
            await client.call_tool("double", {"n": 1})
        await until_listed(client, ["switch"])
        await client.call_tool("switch", {"name": "double", "on": True})
        await client.call_tool("switch", {"name": "quiet", "on": True})
        await until_listed(client, ["switch", "double", "quiet"])
        assert text_of(await client.call_tool("double", {"n": 4})) == "8"


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_a_change_of_an_older_generation_changes_nothing(mode: str) -> None:
    async with connected(server := switching(), mode) as client:
        before = server.members.generation
        await client.call_tool("switch", {"name": "double", "on": False})
        stale = await client.call_tool("switch", {"name": "double", "on": True, "generation": before})
        assert stale.is_error and f"this snapshot ({before} → {before + 1})" in text_of(stale)
        assert server.members.members() == {"switch": True, "double": False}
        unknown = await client.call_tool("switch", {"name": "doubel", "on": True})
        assert unknown.is_error and "did you mean double?" in text_of(unknown)
        assert server.members.generation == before + 1


async def test_h4_what_was_taken_out_stays_out_for_calls_in_other_names_too() -> None:
    tools = Toolset(switch, Toolset(double).deferred())
    async with ToolsetServer(tools, capabilities=["membership"]) as server:
        (found,) = server.search("double")
        resolved = await server.call_tool("resolve_tools", {"ids": [found.id]})
        (grant,) = [one["grant"] for one in resolved.structured["tools"]]
        before = server.members.generation
        server.members.change({"double": False}, generation=before)
        with pytest.raises(UnknownToolError):
            await server.call_tool("call_tool", {"grant": grant, "arguments": {"n": 1}})
        with pytest.raises(StateError, match="try again"):
            server.members.change({"double": True}, generation=before)


async def test_h4_what_hooks_hide_stays_hidden_whoever_turns_it_on() -> None:
    hooks = HookSet()

    @hooks.description("double")
    async def failing(definition: ToolDefinition) -> str | None:
        raise RuntimeError("no")

    tools = Toolset(switch, double)
    async with ToolsetServer(tools, capabilities=["membership"], hooks=hooks) as server:
        server.members.change({"double": True}, generation=server.members.generation)
        await server.settled()
        assert [shown["name"] for shown in server.tools()] == ["switch"]


@tool
async def begin(n: int, context: ToolContext) -> str:
    """Begin to double a number."""

    async def work() -> int:
        await anyio.lowlevel.checkpoint()
        return n * 2

    return context.background.start(work)


@tool
async def hang(context: ToolContext) -> str:
    """Begin what does not end."""
    return context.background.start(anyio.sleep_forever)


@tool
async def finish(id: str, context: ToolContext, within: float = 5) -> str:
    """Await what was begun."""
    return str(await context.background.result(id, timeout=within))


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_work_outlives_its_call_and_is_awaited_in_another(mode: str) -> None:
    server = ToolsetServer(Toolset(begin, finish, hang), capabilities=["background"])
    async with connected(server, mode) as client:
        id = text_of(await client.call_tool("begin", {"n": 21}))
        assert text_of(await client.call_tool("finish", {"id": id})) == "42"
        assert text_of(await client.call_tool("finish", {"id": id})) == "42"
        hanging = text_of(await client.call_tool("hang", {}))
        late = await client.call_tool("finish", {"id": hanging, "within": 0.01})
        assert late.is_error and "has not ended within 0.01 s" in text_of(late)
        unknown = await client.call_tool("finish", {"id": "made-up"})
        assert unknown.is_error and "no background work 'made-up'" in text_of(unknown)


@tool
async def note(kind: str, data: dict[str, Any], context: ToolContext) -> int:
    """Note something."""
    return context.append_event(kind, data).number


@pytest.mark.parametrize("mode", ERAS)
async def test_h4_events_say_which_tool_noted_them_for_whom(mode: str) -> None:
    heard: list[SessionEvent] = []
    events = EventLog(max_events=2, listener=heard.append)
    server = ToolsetServer(Toolset(note).prefixed("x"), capabilities=["events"], events=events)
    async with connected(server, mode) as client:
        for number in range(1, 4):
            result = await client.call_tool("x_note", {"kind": "order", "data": {"n": number}})
            assert text_of(result) == str(number)
        refused = await client.call_tool("x_note", {"kind": "", "data": {}})
        assert refused.is_error and "an event needs a kind" in text_of(refused)
    assert [event.number for event in heard] == [1, 2, 3]
    assert [(event.tool, event.kind, event.data) for event in server.events.since(1)] == [
        ("x_note", "order", {"n": 2}),
        ("x_note", "order", {"n": 3}),
    ]
    assert (heard[0].session is None) == (mode == "auto")
