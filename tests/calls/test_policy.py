import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.calling import tool_table

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import public_name

pytestmark = pytest.mark.anyio


@tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@tool
async def time() -> str:
    """Tell the time."""
    return "noon"


class Policy:
    """Hooks beside what is the object's own."""

    limit = 5
    _private = staticmethod(len)

    def __init__(self) -> None:
        self.client = len
        self.time_hook = self._late

    async def weather_hook(self, call: ToolCall, input: dict[str, Any], context: ToolContext) -> Any:
        return self._checked(input)

    async def weather_description_hook(self, definition: ToolDefinition) -> str | None:
        return f"{definition.description} Indoors."

    @staticmethod
    async def weather_result_hook(call: ToolCall, result: ToolResult) -> ToolResult | None:
        return ToolResult.of_text(f"{result.text}!")

    async def _late(self, call: ToolCall, input: dict[str, Any]) -> Any:
        return Complete("late")

    def _checked(self, input: dict[str, Any]) -> Any:
        return RunNormally({"city": "Rome"}) if input["city"] else Reject("no city")

    @property
    def expensive(self) -> str:
        raise AssertionError("not to be read")


async def answer(hooks: HookSet, toolset: Toolset, name: str, **arguments: Any) -> str:
    bindings = await hooks.describe(toolset.bindings())
    return (await tool_table(bindings, hooks=hooks).call(ToolCall(name, arguments))).text


async def test_l25_a_policy_object_is_registered_by_the_names_of_its_methods():
    hooks, tools = HookSet(), Toolset(weather, time)
    hooks.register(Policy())
    assert await answer(hooks, tools, "weather", city="Oslo") == "sunny in Rome!"
    assert await answer(hooks, tools, "weather", city="") == "Rejected: no city!"
    assert await answer(hooks, tools, "time") == "late"
    described = await hooks.describe(tools.bindings())
    assert [one.definition.description for one in described] == [
        "Tell the weather. Indoors.",
        "Tell the time.",
    ]


async def test_l25_several_objects_are_registered_together_in_order():
    class Again:
        async def weather_result_hook(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
            return ToolResult.of_text(f"{result.text}?")

    hooks = HookSet()
    hooks.register(Policy(), Again())
    assert await answer(hooks, Toolset(weather), "weather", city="Oslo") == "sunny in Rome!?"


async def test_l25_a_module_can_be_a_policy():
    module = ModuleType("rules")
    module.time_hook = Policy()._late  # type: ignore[attr-defined]
    module.helper = rejecting  # type: ignore[attr-defined]
    hooks = HookSet()
    hooks.register(module)
    assert await answer(hooks, Toolset(time), "time") == "late"
    assert "rules" not in sys.modules


def policy_with(name: str, member: Any) -> object:
    async def time_hook(self: object, call: ToolCall, input: dict[str, Any]) -> Any:
        return Reject("")

    return type("Rules", (), {"time_hook": time_hook, name: member})()


async def fits(self: object, call: ToolCall, input: dict[str, Any]) -> Any:
    return Reject("")


@pytest.mark.parametrize(
    ("name", "member"),
    [("weather_hok", fits), ("check", fits), ("hook", fits), ("weatherhook", fits), ("limit_hook", 5)],
)
def test_l25_a_method_that_fits_no_form_is_an_error_that_names_it(name: str, member: Any):
    hooks = HookSet()
    with pytest.raises(DefinitionError, match=rf"policy Rules: {name} is not a hook.*<tool>_result_hook"):
        hooks.register(Policy(), policy_with(name, member))
    assert hooks.execution_hooks("time") == hooks.execution_hooks("weather") == ()


def test_l25_a_method_with_the_right_name_and_the_wrong_form_is_an_error_that_names_it():
    async def short(self: object) -> Any:
        return Reject("")

    hooks = HookSet()
    with pytest.raises(DefinitionError, match=r"short must take \(call\), \(call, input\) or"):
        hooks.register(policy_with("weather_hook", short))
    assert hooks.execution_hooks("time") == ()


@pytest.mark.parametrize(
    ("policy", "says"), [(Policy, r"register Policy\(\)"), (object(), "has no hook"), (5, "has no hook")]
)
def test_l25_what_is_no_policy_is_refused(policy: object, says: str):
    with pytest.raises(DefinitionError, match=says):
        HookSet().register(policy)


def rejecting(*selectors: str) -> HookSet:
    hooks = HookSet()
    for selector in selectors:

        @hooks.execution(selector)
        async def refuse(call: ToolCall, input: dict[str, Any]) -> Any:
            return Reject(call.name)

    return hooks


async def test_l27_hooks_of_a_nested_set_reach_its_tools_under_their_outer_names():
    inner = HookSet()
    inner.register(Policy())
    outer = HookSet()
    outer.execution("time")(Policy()._late)
    tools = Toolset(Toolset(weather, time).prefixed("data"), weather)
    hooks = outer.nested("data", inner)
    assert await answer(hooks, tools, "data_weather", city="Oslo") == "sunny in Rome!"
    assert await answer(hooks, tools, "weather", city="Oslo") == "sunny in Oslo"
    assert await answer(hooks, tools, "data_time") == "late"
    described = await hooks.describe(tools.bindings())
    assert described[0].definition.description == "Tell the weather. Indoors."
    assert outer.execution_hooks("data_weather") == ()


async def test_l27_a_hook_for_every_tool_of_a_nested_set_stays_within_it():
    tools = Toolset(Toolset(weather).prefixed("data"), weather)
    hooks = HookSet().nested("data", rejecting("*"))
    assert await answer(hooks, tools, "data_weather", city="Oslo") == "Rejected: data_weather"
    assert await answer(hooks, tools, "weather", city="Oslo") == "sunny in Oslo"


NAMES = st.text("abcXYZ019_.-", min_size=1, max_size=64)
PREFIXES = st.lists(st.text("abc_-", min_size=1, max_size=32), min_size=1, max_size=4)


@example("x", ["a" * 32, "b" * 32])
@given(NAMES, PREFIXES)
def test_l27_however_deep_it_is_nested_a_hook_reaches_its_tool(name: str, prefixes: list[str]):
    hooks, every = rejecting(name), rejecting("*")
    for prefix in prefixes:
        hooks, every, name = hooks.prefixed(prefix), every.prefixed(prefix), public_name(name, prefix=prefix)
    assert len(hooks.execution_hooks(name)) == 1
    assert len(every.execution_hooks(name)) == 1
    assert hooks.execution_hooks("other") == every.execution_hooks("+") == ()


def test_l27_the_beginning_of_names_is_prefixed_as_the_names_are():
    hooks = rejecting("my.*").prefixed("data")
    assert len(hooks.execution_hooks(public_name("my.tool", prefix="data"))) == 1
    assert hooks.execution_hooks(public_name("your.tool", prefix="data")) == ()


def test_l27_a_prefix_is_one_that_can_start_a_name():
    with pytest.raises(DefinitionError, match="cannot start a tool's name"):
        HookSet().prefixed("a b")


async def test_l26_the_most_particular_description_hook_wins():
    hooks = HookSet()
    for selector in ("*", "data_weather", "data_*"):

        @hooks.description(selector)
        async def describe(definition: ToolDefinition, text: str = selector) -> str | None:
            return text

    tools = Toolset(Toolset(weather, time).prefixed("data"), weather)
    described = await hooks.describe(tools.bindings())
    assert [one.definition.description for one in described] == ["data_weather", "data_*", "*"]
