from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.support.calling import tool_table
from typing_extensions import TypedDict

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RunNormally,
    ToolBinding,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Toolset,
    rejection_reason,
    tool,
)
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio


class City(BaseModel):
    city: str


class Trip(BaseModel):
    city: str
    day: datetime.date | None = None


@dataclass
class TripData:
    city: str
    day: datetime.date | None = None


class TripDict(TypedDict, total=False):
    city: str
    day: datetime.date


class Ran:
    """A tool that notes with what it ran."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def binding(self) -> ToolBinding:
        @tool
        async def weather(city: str, day: datetime.date | None = None, units: str = "metric") -> str:
            """Tell the weather."""
            self.calls.append({"city": city, "day": day, "units": units})
            return f"sunny in {city}"

        return weather.bind()


async def asked(hooks: HookSet, arguments: dict[str, Any] | None = None) -> tuple[ToolResult, list[Any]]:
    ran = Ran()
    dispatch = tool_table([ran.binding()], hooks=hooks)
    with anyio.fail_after(30):
        result = await dispatch.call(ToolCall("weather", arguments or {"city": "Oslo"}, "c1"))
    return result, ran.calls


def deciding(decision: Any, **options: Any) -> HookSet:
    hooks = HookSet(**options)

    @hooks.execution("weather")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        if isinstance(decision, BaseException):
            raise decision
        return decision

    return hooks


def refused(result: ToolResult) -> Any:
    reason = rejection_reason(result)
    assert reason is not None and result.is_error
    return reason


async def test_l18_without_hooks_a_call_runs_unchanged():
    result, calls = await asked(HookSet())
    assert result.text == "sunny in Oslo"
    assert calls == [{"city": "Oslo", "day": None, "units": "metric"}]


async def test_l17_the_first_hook_that_stops_ends_the_asking():
    asked_for: list[str] = []
    hooks = HookSet()

    @hooks.execution("weather")
    async def first(call: ToolCall, input: dict[str, Any]) -> Any:
        asked_for.append(f"first {input['city']}")
        return RunNormally({"city": "Rome"})

    @hooks.execution("*")
    async def second(call: ToolCall, input: dict[str, Any]) -> Any:
        asked_for.append(f"second {input['city']}")
        return Complete("answered")

    @hooks.execution("weather")
    async def third(call: ToolCall, input: dict[str, Any]) -> Any:
        raise AssertionError("not to be asked")

    result, calls = await asked(hooks)
    assert (result.text, calls) == ("answered", [])
    assert asked_for == ["first Oslo", "second Rome"]


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=4))
async def test_l19_the_last_edit_runs_and_the_original_stays_readable(cities: list[str]):
    seen: list[Any] = []
    hooks = HookSet().merged(*(deciding(RunNormally({"city": city})) for city in cities))

    @hooks.execution("weather")
    async def look(call: ToolCall, input: dict[str, Any]) -> Any:
        seen.append(call.original if call.original is not None else call.arguments)
        return RunNormally(input)

    _, calls = await asked(hooks)
    assert [call["city"] for call in calls] == [["Oslo", *cities][-1]]
    assert seen == [{"city": "Oslo"}]


async def test_l17_a_rejection_tells_the_model_why_and_nothing_runs():
    result, calls = await asked(deciding(Reject("not today")))
    assert (refused(result).reason, refused(result).source) == ("not today", "hook")
    assert "not today" in result.text and calls == []


@pytest.mark.parametrize("fault", [ValueError("secret"), SystemExit(1), ExceptionGroup("g", [OSError()])])
async def test_f38_a_hook_that_raises_means_that_nothing_runs(fault: BaseException):
    result, calls = await asked(deciding(fault))
    assert refused(result).reason == "the check of weather failed, so it was not run"
    assert "secret" not in result.text and calls == []


@pytest.mark.parametrize("answer", [None, True, "yes", {"city": "Oslo"}, RunNormally, RunNormally(None)])
async def test_f38_a_hook_that_returns_no_decision_means_that_nothing_runs(answer: Any):
    result, calls = await asked(deciding(answer))
    assert "failed, so it was not run" in refused(result).reason
    assert calls == []


async def after_a_wait(call: ToolCall, input: dict[str, Any]) -> Any:
    await anyio.sleep_forever()


async def in_a_block(call: ToolCall, input: dict[str, Any]) -> Any:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)


async def in_a_loop(call: ToolCall, input: dict[str, Any]) -> Any:
    send, receive = anyio.create_memory_object_stream[int]()
    with send, receive:
        async for _ in receive:
            pass


async def in_a_comprehension(call: ToolCall, input: dict[str, Any]) -> Any:
    send, receive = anyio.create_memory_object_stream[int]()
    with send, receive:
        return RunNormally({"all": [item async for item in receive]})


@functools.wraps(after_a_wait)
async def wrapped(call: ToolCall, input: dict[str, Any]) -> Any:
    return await after_a_wait(call, input)


class Waiting:
    async def __call__(self, call: ToolCall, input: dict[str, Any]) -> Any:
        return await after_a_wait(call, input)


HANGING: list[Any] = [after_a_wait, in_a_block, in_a_loop, in_a_comprehension, wrapped, Waiting()]


@pytest.mark.parametrize("kind", range(len(HANGING)))
async def test_f39_whatever_a_hook_waits_for_its_deadline_ends_it(kind: int):
    hooks = HookSet(timeout=0.01)
    hooks.execution("weather")(HANGING[kind])
    result, calls = await asked(hooks)
    assert "gave no answer in 0.01 s" in refused(result).reason and calls == []


async def test_f39_a_time_out_of_a_hooks_own_is_a_failure_and_no_missed_deadline():
    hooks = HookSet(timeout=5)

    @hooks.execution("weather")
    async def impatient(call: ToolCall, input: dict[str, Any]) -> Any:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    result, calls = await asked(hooks)
    assert refused(result).reason == "the check of weather failed, so it was not run" and calls == []


async def test_f39_a_cancelled_caller_ends_its_hook_and_is_no_refusal():
    hooks, begun, ended = HookSet(timeout=30), anyio.Event(), anyio.Event()

    @hooks.execution("weather")
    async def hang(call: ToolCall, input: dict[str, Any]) -> Any:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    results: list[Any] = []

    async def call() -> None:
        results.append(await asked(hooks))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await begun.wait()
            group.cancel_scope.cancel()
    assert ended.is_set() and results == []


@pytest.mark.parametrize(
    "edited", [{}, {"city": 5}, {"city": "Oslo", "other": 1}, {"city": datetime.date(2020, 1, 1)}, {1: 2}]
)
async def test_f40_an_edit_into_invalid_arguments_is_refused(edited: dict[Any, Any]):
    result, calls = await asked(deciding(RunNormally(edited)))
    assert result.is_error and "Invalid arguments for weather" in result.text
    assert calls == []


async def test_f40_an_edit_in_place_is_checked_and_leaves_the_original_alone():
    hooks, originals = HookSet(), list[Any]()

    @hooks.execution("weather")
    async def edit(call: ToolCall, input: dict[str, Any]) -> Any:
        input["city"] = 5 if input["city"] == "bad" else "Rome"
        call.arguments["units"] = "imperial"
        return RunNormally(input)

    @hooks.execution("weather")
    async def look(call: ToolCall, input: dict[str, Any]) -> Any:
        originals.append(call.original)
        return RunNormally(input)

    sent = {"city": "Oslo"}
    _, calls = await asked(hooks, sent)
    assert calls[0]["city"] == "Rome"
    assert originals == [{"city": "Oslo"}] == [sent]
    result, calls = await asked(hooks, {"city": "bad"})
    assert result.is_error and calls == []


@pytest.mark.parametrize("kind", [Trip, TripData, TripDict, City])
async def test_l17_a_typed_hook_that_changes_nothing_leaves_the_call_as_it_was(kind: Any):
    hooks, seen = HookSet(), list[Any]()

    async def look(call: ToolCall, input: Any) -> Any:
        seen.append(input)
        return RunNormally(input)

    look.__annotations__["input"] = kind
    hooks.execution("weather")(look)
    sent = {"city": "Oslo", "day": "2026-01-02", "units": "imperial"}
    _, calls = await asked(hooks, sent)
    assert calls == [{"city": "Oslo", "day": datetime.date(2026, 1, 2), "units": "imperial"}]
    assert type(seen[0]) is (dict if kind is TripDict else kind)
    if kind is not City:
        day = seen[0]["day"] if kind is TripDict else seen[0].day
        assert day == datetime.date(2026, 1, 2)


@pytest.mark.parametrize("kind", [Trip, TripData, TripDict])
async def test_l17_a_typed_edit_changes_what_it_names_and_keeps_the_rest(kind: Any):
    hooks = HookSet()

    async def edit(call: ToolCall, input: Any) -> Any:
        changes = {"city": "Rome", "day": datetime.date(2030, 1, 1)}
        if isinstance(input, dict):
            input.update(changes)
        else:
            for name, value in changes.items():
                setattr(input, name, value)
        return RunNormally(input)

    edit.__annotations__["input"] = kind
    hooks.execution("weather")(edit)
    _, calls = await asked(hooks, {"city": "Oslo", "units": "imperial"})
    assert calls == [{"city": "Rome", "day": datetime.date(2030, 1, 1), "units": "imperial"}]


async def test_l17_a_typed_hook_may_hand_on_a_new_input_or_a_dictionary():
    for edited, units in ((Trip(city="Rome"), "imperial"), ({"city": "Rome"}, "metric")):
        hooks = HookSet()

        async def edit(edited: Any, call: ToolCall, input: Trip) -> Any:
            return RunNormally(edited)

        hooks.execution("weather")(functools.partial(edit, edited))
        _, calls = await asked(hooks, {"city": "Oslo", "units": "imperial"})
        assert calls == [{"city": "Rome", "day": None, "units": units}]


async def test_f38_an_input_that_does_not_fit_the_hooks_type_means_that_nothing_runs():
    hooks = HookSet()

    class Number(BaseModel):
        city: int

    @hooks.execution("weather")
    async def look(call: ToolCall, input: Number) -> Any:
        return RunNormally(input)

    result, calls = await asked(hooks)
    assert refused(result).reason.startswith("the check of weather failed")
    assert calls == []


async def test_l25_merged_sets_ask_in_order_and_leave_their_parts_alone():
    one, two = deciding(RunNormally({"city": "Rome"})), deciding(RunNormally({"city": "Bonn"}))
    both = one.merged(two)
    for hooks, city in ((one, "Rome"), (two, "Bonn"), (both, "Bonn"), (two.merged(one), "Rome")):
        _, calls = await asked(hooks)
        assert calls[0]["city"] == city
    assert len(one.execution_hooks("weather")) == 1


async def test_l25_a_hook_can_be_registered_for_a_tool_itself():
    @tool
    def weather(city: str) -> str:
        return ""

    hooks = HookSet()
    hooks.execution(weather)(after_a_wait)
    assert len(hooks.execution_hooks("weather")) == 1
    assert hooks.execution_hooks("other") == ()


@pytest.mark.parametrize("selector", [None, 5, "", object()])
def test_l25_a_hook_for_nothing_is_refused(selector: Any):
    with pytest.raises(DefinitionError, match="registered for a tool, a tool's name or"):
        HookSet().execution(selector)


def sync_hook(call: ToolCall, input: dict[str, Any]) -> Any:
    return RunNormally(input)


async def short_hook() -> Any:
    return Reject("")


async def unknown_hook(call: ToolCall, input: Nope) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return Reject("")


@pytest.mark.parametrize(
    ("hook", "says"),
    [(sync_hook, "async def"), (short_hook, "must take"), (unknown_hook, "cannot be resolved")],
)
def test_l25_a_function_that_cannot_be_a_hook_is_refused_at_once(hook: Any, says: str):
    with pytest.raises(DefinitionError, match=says) as refusal:
        HookSet().execution("weather")(hook)
    assert hook.__name__ in str(refusal.value)


def sum_up(a: int) -> int:
    """Sum."""
    return a


def multiply(a: int) -> int:
    """Multiply."""
    return a


async def described(hooks: HookSet) -> dict[str, str | None]:
    bindings = Toolset(sum_up, multiply).bindings()
    with anyio.fail_after(30):
        return {one.name: one.definition.description for one in await hooks.describe(bindings)}


async def test_l26_none_keeps_the_text_and_the_last_hook_wins():
    hooks = HookSet()

    @hooks.description("sum_up")
    async def first(definition: ToolDefinition) -> str | None:
        return "First."

    @hooks.description("sum_up")
    async def last(definition: ToolDefinition) -> str | None:
        return f"{definition.description} Last."

    assert await described(hooks) == {"sum_up": "Sum. Last.", "multiply": "Multiply."}

    @hooks.description("*")
    async def keep(definition: ToolDefinition) -> str | None:
        return None

    assert await described(hooks) == {"sum_up": "Sum. Last.", "multiply": "Multiply."}


@pytest.mark.parametrize("answer", [ValueError("broken"), SystemExit(), 5, ["text"]])
async def test_f41_a_description_hook_that_fails_hides_only_its_tool(answer: Any):
    hooks = HookSet()

    @hooks.description("sum_up")
    async def fail(definition: ToolDefinition) -> str | None:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert await described(hooks) == {"multiply": "Multiply."}


async def test_f41_a_description_hook_that_hangs_hides_only_its_tool():
    hooks = HookSet(timeout=0.01)

    @hooks.description("multiply")
    async def hang(definition: ToolDefinition) -> str | None:
        await anyio.sleep_forever()

    assert await described(hooks) == {"sum_up": "Sum."}


def test_l26_a_description_hook_is_async_too():
    with pytest.raises(DefinitionError, match="async def"):
        HookSet().description("sum_up")(lambda definition: "x")  # type: ignore[arg-type,return-value]
