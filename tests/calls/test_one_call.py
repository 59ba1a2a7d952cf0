"""A typed call by itself: selector, input, parts, and hooks for it alone (L9)."""

from __future__ import annotations

from typing import assert_type

import pytest
from pydantic import BaseModel

from mcp_toolset import Complete, HookSet, InputTool, Reject, RunNormally, ToolCall, Toolset, rejection_reason
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.rounds import DecodedCall, RejectedInput, ToolAvailability, ToolRequirement

pytestmark = pytest.mark.anyio


class Weather(BaseModel):
    """Tell the weather."""

    city: str
    days: int = 1


class Report(BaseModel):
    text: str


WEATHER = InputTool.of(Weather, output=Report, name="weather")
TOOLS = Toolset(WEATHER, Toolset(WEATHER).prefixed("x"))
VIEW = TOOLS.view()


def decoded(name: str = "weather", city: str = " Oslo ") -> DecodedCall[Weather, Report]:
    return WEATHER.decode(ToolCall(name, {"city": city}, "1"), VIEW)


def hooks_for(name: str) -> HookSet:
    hooks = HookSet()

    @hooks.execution(name)
    async def trim(call: ToolCall, input: Weather) -> RunNormally:
        return RunNormally(input.model_copy(update={"city": input.city.strip()}))

    @hooks.execution(name)
    async def decide(call: ToolCall, input: Weather) -> RunNormally | Complete | Reject:
        match input.city:
            case "":
                return Reject("city must not be blank")
            case "Here":
                return Complete(Report(text="look outside"))
            case "Nowhere":
                return Complete({"no": "report"})
            case _:
                return RunNormally(input)

    return hooks


def test_l9_a_call_gives_its_selector_its_typed_input_and_its_parts():
    call = decoded()
    assert_type(call.selector, InputTool[Weather, Report])
    assert call.selector is WEATHER and call.parts() == (call.metadata, Weather(city=" Oslo "))
    tools = Toolset(WEATHER)
    assert list(tools.view(ToolAvailability.only(call.selector))) == ["weather"]
    assert ToolRequirement.specific(call.selector).resolve(tools.view()) == ["weather"]


@pytest.mark.parametrize("name", ["weather", "x_weather"])
async def test_l9_hooks_edit_one_call_and_it_is_completed_with_what_was_sent(name: str):
    left = await decoded(name).hook(hooks_for(name))
    assert isinstance(left, DecodedCall)
    assert left.input == Weather(city="Oslo") and left.metadata.arguments == {"city": " Oslo "}
    assert left.complete(Report(text="rain")).arguments == {"city": " Oslo "}


async def test_l9_without_hooks_for_it_a_call_is_as_it_was():
    call = decoded()
    left = await call.hook(hooks_for("x_weather"))
    assert isinstance(left, DecodedCall) and left.parts() == call.parts()


async def test_l9_an_input_that_the_application_has_replaced_is_what_hooks_see():
    call = decoded()
    call.input = Weather(city=" Bergen ", days=3)
    left = await call.hook(hooks_for("weather"))
    assert isinstance(left, DecodedCall) and left.input == Weather(city="Bergen", days=3)
    assert left.metadata.arguments == {"city": " Oslo "}


@pytest.mark.needs("model_loop")
async def test_l9_what_hooks_answer_or_refuse_is_committed_as_the_call_s():
    from mcp_toolset.rounds import ToolRound

    calls = [ToolCall("weather", {"city": city}, city or "-") for city in ("Here", "", "Oslo")]
    plan = ToolRound.from_calls(calls, VIEW).plan
    given = []
    for call in plan.pending:
        match await WEATHER.decode(call, VIEW).hook(hooks_for("weather")):
            case RejectedInput() as rejected:
                assert rejected.reason == "city must not be blank" and rejected.input == Weather(city="")
                given.append(rejected.completed)
            case DecodedCall() as left:
                given.append(left.complete(Report(text="rain")))
            case handled:
                assert handled.output == Report(text="look outside")
                given.append(handled.completed)
    commit = plan.commit(given)
    assert [done.result.structured for done in commit.results] == [
        {"text": "look outside"},
        None,
        {"text": "rain"},
    ]
    refused = rejection_reason(commit.results[1].result)
    assert refused is not None and refused.reason == "city must not be blank"


async def test_l9_an_answer_that_the_tool_does_not_promise_is_an_error():
    with pytest.raises(InvalidOutputError):
        await decoded(city="Nowhere").hook(hooks_for("weather"))


async def test_l9_a_hook_that_raises_refuses_the_call():
    hooks = HookSet()

    @hooks.execution("*")
    async def broken(call: ToolCall, input: Weather) -> RunNormally:
        raise RuntimeError("secret")

    refused = await decoded().hook(hooks)
    assert isinstance(refused, RejectedInput)
    assert "failed" in refused.reason and "secret" not in refused.result.text
