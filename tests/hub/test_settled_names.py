"""Wrong names beside mounts that are dead or late, in `hide`, and in the `eras` of a mount."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.server.test_server import upstream

from mcp_toolset import (
    DynamicToolset,
    HookSet,
    Reject,
    RemoteToolset,
    Rules,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolRegistry,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import UnknownNameError, UnknownToolError
from mcp_toolset.rounds import ToolRound

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools", "model_loop")]


@tool
def weather(city: str = "") -> str:
    """Tell the weather."""
    return "sun"


@tool
def delete(path: str = "") -> str:
    """Delete a file."""
    return "deleted"


def refusing(name: str) -> HookSet:
    hooks = HookSet()

    @hooks.execution(name)
    async def no(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("no")

    return hooks


class Far(ToolProvider):
    """A mounted server that lists when it may; without names it fails."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.may_list = anyio.Event()

    async def list_definitions(self) -> list[ToolDefinition]:
        await self.may_list.wait()
        if not self.names:
            raise OSError("connection refused")
        return [ToolDefinition(name) for name in self.names]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(call.name)


def far(*names: str, listed: bool = True) -> tuple[Far, DynamicToolset]:
    provider = Far(*names)
    if listed:
        provider.may_list.set()
    return provider, DynamicToolset(provider, name="far")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "mcp_toolset.names"]


async def test_u20_beside_a_dead_mount_a_wrong_name_is_told_once(caplog: pytest.LogCaptureFixture):
    provider, mount = far()
    async with ToolsetServer(Toolset(weather, mount), hooks=refusing("wether")) as server:
        await server.settled()
        assert server.statuses()["far"].state == "offline"
        assert told(caplog) == [
            "hooks.execution('wether') has no effect: there is no such tool; did you mean weather? "
            "(far cannot be reached now and may have it)"
        ]
        provider.names = ("look",)
        await mount.refresh()
        await server.settled()
        provider.names = ()
        await mount.refresh()
        await server.settled()
        (one,) = server.unbound()
        assert one.is_settled and one.waiting == ("far",) and one.starting == ()
    assert len(told(caplog)) == 1


async def test_u20_a_mount_that_is_still_starting_is_waited_for(caplog: pytest.LogCaptureFixture):
    provider, mount = far("look", listed=False)
    dead = DynamicToolset(far()[0], name="dead")
    async with ToolsetServer(Toolset(weather, mount, dead), hooks=refusing("wether")) as server:
        (one,) = server.unbound()
        assert "far" in one.starting and not one.is_settled and "so far" in one.reason
        assert told(caplog) == []
        provider.may_list.set()
        await server.settled()
        (line,) = told(caplog)
        assert line.endswith("did you mean weather? (dead cannot be reached now and may have it)")


async def test_u20_a_strict_server_starts_beside_a_dead_mount_and_warns(caplog: pytest.LogCaptureFixture):
    _, mount = far()
    rules = Rules(hooks=refusing("wether"), strict=True)
    async with ToolsetServer(Toolset(weather, mount), rules=rules) as server:
        assert (await server.call_tool("weather")).text == "sun"
    assert len(told(caplog)) == 1


async def test_u20_names_for_the_tools_of_a_dead_mount_itself_are_not_called_wrong(
    caplog: pytest.LogCaptureFixture,
):
    _, mount = far()
    async with ToolsetServer(Toolset(weather, mount.filtered(exclude=["secret"]))) as server:
        await server.settled()
        (one,) = server.unbound()
        assert one.waiting == ("far",) and not one.is_settled
    assert told(caplog) == []


async def test_u20_a_loop_beside_a_dead_mount_is_told_too(caplog: pytest.LogCaptureFixture):
    _, mount = far()
    hooks = refusing("x")
    async with Toolset(weather, mount) as tools:
        for _ in range(2):
            await ToolRound.from_calls([ToolCall("weather", {}, "1")], tools.view()).apply(hooks)
    (line,) = told(caplog)
    assert "far cannot be reached now" in line


def test_u20_hiding_no_tool_is_an_error_where_all_tools_are_known():
    registry = ToolRegistry(Toolset(weather, Toolset(delete).prefixed("files")))
    before = registry.generation
    for name, near in (("wether", "weather"), ("delete", "files_delete"), ("files_delte", "files_delete")):
        with pytest.raises(UnknownToolError, match=rf"{name} \(in hide\); did you mean {near}\?"):
            registry.hide("weather", name)
    assert registry.generation == before and registry.names == ("weather", "files_delete")
    hidden = ToolRegistry(Toolset(weather, delete).filtered(exclude=["delete"]))
    assert hidden.hide("delete") and hidden.unbound() == []
    with pytest.raises(UnknownToolError, match="data_"):
        registry.hide("data_*", strict=True)
    registry.hide("data_*")
    registry.hide("later", strict=False)
    registry.hide("files_delete")
    assert registry.names == ("weather",)
    assert [(one.where, one.name) for one in registry.unbound()] == [
        ("registry.hide", "data_*"),
        ("registry.hide", "later"),
    ]


def test_u20_what_is_hidden_before_its_toolset_is_registered_is_no_error():
    registry = ToolRegistry(hidden=["delete"])
    registry.hide("weather")
    assert registry.register(Toolset(weather, delete)) and registry.names == ()
    registry.remove(registry.handles()[0])
    assert registry.unbound() == []


@pytest.mark.parametrize("strict", [None, True])
async def test_u20_hiding_no_tool_beside_a_mount_is_told_once_it_has_listed(
    strict: bool | None, caplog: pytest.LogCaptureFixture
):
    provider, mount = far("look", listed=False)
    async with ToolsetServer(Toolset(weather, mount), rules=Rules()) as server:
        server.registry.hide("lok", strict=strict)
        provider.may_list.set()
        await server.settled()
        assert [(one.where, one.name, one.near) for one in server.unbound()] == [
            ("registry.hide", "lok", ("look",))
        ]
        if strict:
            with pytest.raises(UnknownToolError, match=r"lokk \(in hide\); did you mean look\?"):
                server.registry.hide("lokk", strict=True)
        await server.settled()
    assert len(told(caplog)) == 1 and "registry.hide('lok')" in told(caplog)[0]


async def test_u20_strict_rules_refuse_to_hide_no_tool():
    _, mount = far("look")
    server = ToolsetServer(Toolset(weather, mount), rules=Rules(strict=True))
    server.registry.hide("lok")
    with pytest.raises(UnknownNameError, match="lok"):
        async with server:
            pass


async def test_u20_a_view_of_a_registry_tells_of_what_hides_nothing(caplog: pytest.LogCaptureFixture):
    _, mount = far("look")
    tools = Toolset(weather, mount)
    async with tools:
        registry = ToolRegistry(tools, hidden=["lok"])
        for _ in range(2):
            assert "look" in registry.view()
    (line,) = told(caplog)
    assert "registry.hide('lok')" in line and "did you mean look?" in line


async def test_u20_an_era_for_no_tool_is_told_once_the_server_has_listed(caplog: pytest.LogCaptureFixture):
    mount = RemoteToolset(upstream("echo"), name="up", eras={"eco": "legacy", "echo": "legacy"}).prefixed("x")
    async with ToolsetServer(Toolset(weather, mount)) as server:
        await server.settled()
        assert [(one.where, one.name, one.near, one.server) for one in server.unbound()] == [
            ("eras", "eco", ("echo",), "up")
        ]
    assert told(caplog) == [
        "eras('eco') has no effect: there is no such tool of server 'up'; did you mean echo?"
    ]
    with pytest.raises(UnknownNameError, match="eco"):
        async with ToolsetServer(Toolset(weather, mount), rules=Rules(strict=True)):
            pass
