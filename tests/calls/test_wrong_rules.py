"""Middleware and hooks of a wrong shape are refused where they are given, with what is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from mcp_toolset import (
    Complete,
    HookSet,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    serve,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import Timeout, tool_middleware

pytestmark = pytest.mark.anyio


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return city


async def short(call: ToolCall, next: Any) -> ToolResult:
    return await next()


async def long(call: ToolCall, context: ToolContext, next: Any, more: int) -> ToolResult:
    return await next()


async def swapped(context: ToolContext, call: ToolCall, next: Any) -> ToolResult:
    return await next()


WRONG = {
    "text": ("log", "not 'log'"),
    "class": (Timeout, r"not the class Timeout; give an object: Timeout\(…\)"),
    "number": (3, "not 3"),
    "short": (short, "short takes"),
    "long": (long, "long takes"),
    "swapped": (swapped, "in this order"),
}


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("kind", WRONG)
async def test_u28_middleware_of_a_wrong_shape_is_refused_where_it_is_given(kind: str):
    from mcp_toolset.rounds import ToolRound

    layer: Any = WRONG[kind][0]
    tools, said = Toolset(weather), WRONG[kind][1]
    for give in (
        lambda: Rules(middleware=[layer]),
        lambda: Rules(tool_middleware={"weather": [layer]}),
        lambda: ToolsetServer(tools, middleware=[layer]),
        lambda: ToolsetServer(tools, tool_middleware={"weather": [layer]}),
        lambda: serve(tools, middleware=[layer]),
        lambda: tool_middleware(layer),
    ):
        with pytest.raises(DefinitionError, match=r"\(call, context, next\).*" + said):
            give()
    round = ToolRound.from_calls([ToolCall("weather", {"city": "Bern"}, "1")], tools.view())
    with pytest.raises(DefinitionError, match=said):
        await round.apply(layer)


def test_u28_what_can_be_middleware_is_taken():
    class Layer:
        async def __call__(self, call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
            return await next()

        async def method(self, one: ToolCall, two: ToolContext, three: Any) -> ToolResult:
            return await three()

    async def anything(*arguments: Any) -> ToolResult:
        return await arguments[2]()

    layers: list[Any] = [Layer(), Layer().method, anything, lambda call, context, next: next()]
    Rules(middleware=layers)


async def input_first(input: dict[str, Any], call: ToolCall) -> RunNormally:
    return RunNormally(input)


async def named_alone(input, call):  # type: ignore[no-untyped-def]
    return RunNormally(input)


async def context_second(call: ToolCall, context: ToolContext, input: dict[str, Any]) -> RunNormally:
    return RunNormally(input)


@pytest.mark.parametrize("hook", [input_first, named_alone, context_second])
def test_u28_a_hook_with_swapped_parameters_is_refused(hook: Any):
    with pytest.raises(DefinitionError, match=r"\(call, input\) or \(call, input, context\), in this order"):
        HookSet().execution("weather")(hook)


def test_u28_a_hook_that_is_a_class_is_refused():
    class Hook:
        async def __call__(self, call: ToolCall, input: dict[str, Any]) -> RunNormally:
            return RunNormally(input)

    with pytest.raises(DefinitionError, match="is a class; register an object"):
        HookSet().execution("weather")(Hook)  # type: ignore[type-var]
    HookSet().execution("weather")(Hook())


class Order(BaseModel):
    article: str


class Near(BaseModel):
    city: str
    country: str


@dataclass
class Other:
    article: str = ""


class Narrow(BaseModel):
    model_config = ConfigDict(extra="forbid")
    days: int = 1


class Place(BaseModel):
    city: str


class Where(BaseModel):
    town: str = Field(alias="city")


class Loose(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    city: str = Field(alias="town")


def hooked(model: Any, selector: Any) -> HookSet:
    hooks = HookSet()

    async def hook(call: ToolCall, input: Any) -> Complete:
        return Complete("")

    hook.__annotations__["input"] = model
    hooks.execution(selector)(hook)
    return hooks


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("model", [Order, Near, Other, Narrow])
async def test_u28_a_model_foreign_to_its_tool_is_refused(model: Any):
    from mcp_toolset.rounds import ToolRound

    with pytest.raises(DefinitionError, match=f"its input {model.__name__} .*'weather'"):
        hooked(model, weather)
    hooks = hooked(model, "weather")
    with pytest.raises(DefinitionError, match=f"its input {model.__name__} "):
        async with ToolsetServer(Toolset(weather).prefixed("x"), hooks=hooks):
            pass
    with pytest.raises(DefinitionError, match=f"its input {model.__name__} "):
        await ToolRound.from_calls([], Toolset(weather).view()).apply(hooks)


@pytest.mark.parametrize("model", [Place, Where, Loose, dict[str, Any]])
async def test_u28_a_model_that_fits_is_taken(model: Any):
    hooked(model, weather)
    async with ToolsetServer(Toolset(weather), hooks=hooked(model, "weather")):
        pass
