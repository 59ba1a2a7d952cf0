"""How names are bound and when the missing are told, for hooks, middleware, limits, caches and verbs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_toolset import (
    DynamicToolset,
    HookSet,
    Reject,
    Rules,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.arguments import hide
from mcp_toolset.errors import DefinitionError, UnknownNameError, UnknownToolError
from mcp_toolset.middleware import ResultCache, Timeout, tool_middleware
from mcp_toolset.rounds import ToolAvailability, ToolRound

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools", "model_loop", "result_cache")]


@tool
def weather(city: str = "") -> str:
    """Tell the weather."""
    return f"sun {city}"


@tool
def delete(path: str = "") -> str:
    """Delete a file."""
    return "deleted"


@tool_middleware
async def refuse(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
    return ToolResult.of_error("no")


def refusing(*selectors: Any) -> HookSet:
    hooks = HookSet()
    for selector in selectors:

        @hooks.execution(selector)
        async def no(call: ToolCall, input: dict[str, Any]) -> Reject:
            return Reject("no")

    return hooks


def described(selector: Any) -> HookSet:
    hooks = HookSet()

    @hooks.description(selector)
    async def text(definition: ToolDefinition) -> str:
        return "Told."

    return hooks


def seeing(selector: Any) -> HookSet:
    hooks = HookSet()

    @hooks.result(selector)
    async def seen(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_text("seen")

    return hooks


class Policy:
    async def wether_hook(self, call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("no")


def registered() -> HookSet:
    hooks = HookSet()
    hooks.register(Policy())
    return hooks


RULES: dict[str, Callable[[], Rules]] = {
    "hooks.execution": lambda: Rules(hooks=refusing("wether")),
    "hooks.description": lambda: Rules(hooks=described("wether")),
    "hooks.result": lambda: Rules(hooks=seeing("wether")),
    "policy": lambda: Rules(hooks=registered()),
    "tool_middleware": lambda: Rules(tool_middleware={"wether": [refuse]}),
    "Timeout": lambda: Rules(middleware=[Timeout(5, per_tool={"wether": 1})]),
    "ResultCache": lambda: Rules(middleware=[ResultCache(5, only=["wether"])]),
    "inside tool_middleware": lambda: Rules(
        tool_middleware={"weather": [Timeout(5, per_tool={"wether": 1})]}
    ),
    "descriptions": lambda: Rules(descriptions={"wether": "Told."}),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("where", RULES)
async def test_u20_a_rule_for_no_tool_is_an_error_where_all_tools_are_known(where: str):
    with pytest.raises(UnknownNameError, match="'wether'.*did you mean weather"):
        async with ToolsetServer(Toolset(weather), rules=RULES[where]()):
            pass
    view = Toolset(weather).view()
    with pytest.raises(UnknownNameError, match="'wether'.*did you mean weather"):
        await ToolRound.from_calls([ToolCall("weather", {}, "1")], view).apply(RULES[where]())


VERBS: dict[str, Callable[[Toolset], Toolset]] = {
    "off": lambda tools: tools.off("wether"),
    "exclude": lambda tools: tools.filtered(exclude=["wether"]),
    "include": lambda tools: tools.filtered(include=["wether"]),
    "described": lambda tools: tools.described({"wether": "Told."}),
    "renamed": lambda tools: tools.renamed({"wether": "sky"}),
    "with_arguments": lambda tools: tools.with_arguments({"wether": {"city": hide()}}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_u20_a_verb_for_no_tool_is_an_error_where_all_tools_are_known(verb: str):
    with pytest.raises(UnknownToolError, match="wether.*did you mean weather"):
        VERBS[verb](Toolset(weather))


class Listing(ToolProvider):
    """A mounted server that lists what it is told to."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.may_list = anyio.Event()

    async def list_definitions(self) -> list[ToolDefinition]:
        await self.may_list.wait()
        return [ToolDefinition(name, input_schema={"type": "object"}) for name in self.names]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(call.name)


@asynccontextmanager
async def listed(
    names: tuple[str, ...],
    shape: Callable[[Toolset], Toolset] = lambda tools: tools,
    rules: Rules | None = None,
) -> AsyncGenerator[tuple[ToolsetServer, DynamicToolset, Listing]]:
    provider = Listing(*names)
    provider.may_list.set()
    mount = DynamicToolset(provider, name="far")
    async with ToolsetServer(Toolset(weather, shape(mount)), rules=rules or Rules()) as server:
        yield server, mount, provider


@pytest.mark.parametrize("where", ["hooks.execution", "inside tool_middleware", "descriptions"])
async def test_u20_with_a_mount_a_rule_for_no_tool_is_a_warning_once(
    where: str, caplog: pytest.LogCaptureFixture
):
    async with listed(("look",), rules=RULES[where]()) as (server, mount, provider):
        assert [one.name for one in server.unbound()] == ["wether"]
        provider.names = ("look", "see")
        await mount.refresh()
        await server.settled()
    told = [one.getMessage() for one in caplog.records if one.name == "mcp_toolset.names"]
    assert len(told) == 1 and "'wether'" in told[0] and "did you mean weather" in told[0]


@pytest.mark.parametrize("verb", VERBS)
async def test_u20_with_a_mount_a_verb_for_no_tool_is_a_warning(verb: str, caplog: pytest.LogCaptureFixture):
    async with listed(("weather_now",), VERBS[verb]) as (server, _, _):
        (one,) = server.unbound()
        assert one.name == "wether" and one.where in (verb, "include", "exclude")
    assert [line.levelno for line in caplog.records if line.name == "mcp_toolset.names"] == [logging.WARNING]


async def test_u20_a_mount_that_brings_the_tool_later_is_waited_for():
    rules = Rules(hooks=refusing("look"))
    async with listed((), rules=rules) as (server, mount, provider):
        provider.names = ("look",)
        await mount.refresh()
        await server.settled()
        assert server.unbound() == ()
        assert (await server.call_tool("look")).is_error
        # It was there: a tool that has gone is no mistake in a name.
        provider.names = ()
        await mount.refresh()
        await server.settled()


@pytest.mark.parametrize("where", ["hooks.execution", "Timeout"])
async def test_u20_strict_rules_make_it_an_error_with_a_mount(where: str):
    rules = Rules(strict=True).merged(RULES[where]())
    with pytest.raises(UnknownNameError, match="'wether'"):
        async with listed(("look",), rules=rules):
            pass


async def test_u20_a_loop_warns_about_verbs_and_rules_once_and_strict_rules_refuse(
    caplog: pytest.LogCaptureFixture,
):
    provider = Listing("look")
    provider.may_list.set()
    async with Toolset(weather, DynamicToolset(provider, name="far").off("lok")) as tools:
        calls, rules = [ToolCall("weather", {}, "1")], Rules(hooks=refusing("wether"))
        for _ in range(2):
            await ToolRound.from_calls(calls, tools.view()).apply(rules)
        told = [one.getMessage() for one in caplog.records if one.name == "mcp_toolset.names"]
        assert [line.split(" ")[0] for line in told] == ["off('lok')", "hooks.execution('wether')"]
        with pytest.raises(UnknownNameError, match="lok"):
            await ToolRound.from_calls(calls, tools.view()).apply(Rules(strict=True))


async def test_u20_rules_that_are_not_strict_only_warn(caplog: pytest.LogCaptureFixture):
    rules = Rules(hooks=refusing("later"), strict=False)
    async with ToolsetServer(Toolset(weather), rules=rules) as server:
        assert "later" in caplog.text

        @tool
        def later() -> str:
            """Come later."""
            return "late"

        await server.attach(later)
        assert (await server.call_tool("later")).is_error and server.unbound() == ()


async def test_u20_rules_may_be_for_tools_that_are_not_offered_this_time():
    tools = Toolset(weather, delete)
    hooks = refusing("delete")
    for some in (
        tools.filtered(exclude=["delete"]),
        tools.off("delete"),
        Toolset(weather, delete).deferred(),
    ):
        async with ToolsetServer(some, hooks=hooks):
            pass
    view = tools.view(ToolAvailability.only("weather"))
    await ToolRound.from_calls([ToolCall("weather", {}, "1")], view).apply(hooks)


async def test_u20_a_pattern_that_fits_nothing_is_a_warning(caplog: pytest.LogCaptureFixture):
    async with ToolsetServer(Toolset(weather), hooks=refusing("data_*", "*")):
        pass
    (told,) = [one.getMessage() for one in caplog.records if one.name == "mcp_toolset.names"]
    assert "'data_*'" in told


async def ran(tools: Toolset, rules: Rules, name: str) -> str:
    """What a call comes to, the same when served, in a loop, and by itself."""
    async with ToolsetServer(tools, rules=rules) as server:
        served = (await server.call_tool(name)).text
    plan = await ToolRound.from_calls([ToolCall(name, {}, "1")], tools.view()).apply(rules)
    await plan.run_pending()
    (done,) = plan.commit().results
    assert done.result.text == served
    return served


FOLLOWING: dict[str, Rules] = {
    "hook": Rules(hooks=refusing("delete")),
    "hook of the tool": Rules(hooks=refusing(delete)),
    "middleware": Rules(tool_middleware={"delete": [refuse]}),
    "middleware of the tool": Rules(tool_middleware={delete: [refuse]}),
}


@pytest.mark.parametrize("kind", FOLLOWING)
async def test_u21_a_rule_follows_its_tool_through_prefixes_and_renames(kind: str):
    rules = FOLLOWING[kind]
    for tools, name in (
        (Toolset(delete), "delete"),
        (Toolset(delete).prefixed("fs"), "fs_delete"),
        (Toolset(delete).renamed({"delete": "remove"}), "remove"),
        (Toolset(Toolset(delete).renamed({"delete": "remove"}).prefixed("fs")).prefixed("x"), "x_fs_remove"),
    ):
        assert await ran(Toolset(weather, tools), rules, name) in ("no", "Rejected: no")
        assert await ran(Toolset(weather, tools), rules, "weather") == "sun "


async def test_u21_a_name_of_now_goes_before_a_name_of_before():
    @tool(name="delete")
    def other() -> str:
        """Delete something else."""
        return "other"

    tools = Toolset(other, Toolset(delete).prefixed("fs"))
    rules = Rules(hooks=refusing("delete"))
    assert await ran(tools, rules, "delete") == "Rejected: no"
    assert await ran(tools, rules, "fs_delete") == "deleted"
    assert await ran(tools, Rules(hooks=refusing(delete)), "delete") == "other"


async def test_u21_a_name_that_several_tools_had_is_refused():
    tools = Toolset(Toolset(delete).prefixed("a"), Toolset(delete).prefixed("b"))
    with pytest.raises(UnknownNameError, match="a_delete or b_delete"):
        async with ToolsetServer(tools, hooks=refusing("delete")):
            pass
    with pytest.raises(DefinitionError, match="a_delete or b_delete"):
        tools.off("delete")


async def test_u21_a_pattern_that_fitted_before_a_prefix_is_refused():
    with pytest.raises(UnknownNameError, match="fs_delete"):
        async with ToolsetServer(Toolset(delete).prefixed("fs"), hooks=refusing("del*")):
            pass


async def test_u21_a_mounted_tool_takes_no_hook_away_from_a_local_one():
    provider = Listing("delete")
    provider.may_list.set()
    tools = Toolset(Toolset(delete).prefixed("fs"), DynamicToolset(provider, name="far"))
    async with ToolsetServer(tools, hooks=refusing("delete")) as server:
        assert (await server.call_tool("delete")).text == "Rejected: no"
        assert (await server.call_tool("fs_delete")).text == "Rejected: no"


async def test_u21_limits_and_caches_follow_their_tool():
    runs: list[str] = []

    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    @tool
    def count() -> str:
        """Count."""
        runs.append("")
        return str(len(runs))

    rules = Rules(middleware=[Timeout(60, per_tool={"hang": 0.01}), ResultCache(60, only=["count"])])
    async with ToolsetServer(Toolset(hang, count).prefixed("x"), rules=rules) as server:
        assert "no answer within 0.01 s" in (await server.call_tool("x_hang")).text
        assert [(await server.call_tool("x_count")).text for _ in range(2)] == ["1", "1"]
