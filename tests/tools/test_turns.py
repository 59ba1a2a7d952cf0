"""The turn's own input, typed: from a request when served, from the application in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import mcp
import pytest
from pydantic import BaseModel

from mcp_toolset import (
    DynamicToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.transform import Turns, turn_from_meta

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools")]


class Where(BaseModel):
    city: str


@dataclass(frozen=True)
class Who:
    user: str


@tool
def pay(amount: int, user: str = "nobody") -> str:
    """Pay."""
    return f"{user} pays {amount}"


def with_user(call: ToolCall, turn: Who) -> Mapping[str, Any]:
    return {**call.arguments, "user": turn.user}


class Weather(ToolProvider):
    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition("weather", input_schema={"type": "object"})]

    def prepare(self, call: ToolCall, turn: Where) -> Mapping[str, Any]:
        return {**call.arguments, "city": turn.city}

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"rain in {call.arguments['city']}")


KEY = "example.com/where"


def who(context: ToolContext) -> Who:
    return Who(context.meta["example.com/user"])


def served() -> Toolset:
    return Toolset(
        Toolset(pay).prepared(call=with_user).with_turn(who),
        DynamicToolset(Weather(), name="weather").with_turn(turn_from_meta(KEY, Where)),
    )


async def test_u68_each_request_brings_a_typed_turn_for_each_provider():
    with anyio.fail_after(30):
        async with ToolsetServer(served()) as server, mcp.Client(server.lowlevel) as client:

            async def call(name: str, arguments: dict[str, Any], **meta: Any) -> tuple[bool | None, str]:
                answer = await client.call_tool(name, arguments, meta=meta)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                return answer.is_error, answer.content[0].text  # type: ignore[union-attr]

            meta = {KEY: {"city": "Bern"}, "example.com/user": "ann"}
            assert await call("pay", {"amount": 3}, **meta) == (False, "ann pays 3")
            assert await call("pay", {"amount": 3, "user": "eve"}, **meta) == (False, "ann pays 3")
            assert await call("weather", {}, **meta) == (False, "rain in Bern")
            wrong = await call("weather", {}, **{KEY: {"town": "Bern"}})
            assert wrong[0] and f"{KEY}.city: Field required" in wrong[1]
            for name, arguments in (("weather", {}), ("pay", {"amount": 1})):
                refused = await call(name, arguments)
                assert refused == (True, f"the arguments of {name} could not be prepared, so it was not run")


async def test_u68_in_a_loop_the_application_gives_one_turn_of_each_type():
    weather = DynamicToolset(Weather(), name="weather")
    tools = Toolset(Toolset(pay).prepared(call=with_user), weather)
    await weather.refresh()
    view = tools.view(turn=Turns(Who("bob"), Where(city="Rome")))
    assert (await view.execute("pay", {"amount": 1})).text == "bob pays 1"
    assert (await view.execute("weather", {})).text == "rain in Rome"
    with pytest.raises(DefinitionError, match="needs a turn of type Where"):
        tools.view(turn=Turns(Who("bob")))
    with pytest.raises(DefinitionError, match=r"serve toolset\.with_turn"):
        tools.view()


async def test_u68_a_given_turn_goes_before_that_of_the_call_and_the_innermost_function_has_the_word():
    inner = Toolset(pay).prepared(call=with_user).with_turn(lambda context: Who("inner"))
    outer = inner.with_turn(lambda context: Who("outer")).prefixed("a")
    assert (await outer.view().execute("a_pay", {"amount": 1})).text == "inner pays 1"
    assert (await outer.view(turn=Who("given")).execute("a_pay", {"amount": 1})).text == "given pays 1"
    wrong = Toolset(pay).prepared(call=with_user).with_turn(lambda context: "no turn")
    with pytest.raises(InvalidArgumentsError, match="could not be prepared"):
        await wrong.view().execute("pay", {"amount": 1})


async def test_u68_what_gives_no_turn_is_refused():
    async def waits(context: ToolContext) -> Who:
        return Who("x")

    for function in (waits, 3):
        with pytest.raises(DefinitionError, match="a plain function of the context"):
            Toolset(pay).with_turn(function)  # type: ignore[arg-type]
