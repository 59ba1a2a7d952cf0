from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import tool_table

from mcp_toolset import HookSet, RunNormally, ToolCall, ToolContext, ToolResult, tool
from mcp_toolset.middleware import CallNext, ToolMiddleware, tool_middleware

pytestmark = pytest.mark.anyio


class Trail:
    """Tools and layers that note in what order they were passed."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def layer(self, name: str) -> ToolMiddleware:
        async def pass_through(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
            self.steps.append(f"in {name}")
            try:
                return await next()
            finally:
                self.steps.append(f"out {name}")

        return pass_through

    async def call(
        self, *middleware: ToolMiddleware, arguments: dict[str, Any] | None = None, **options: Any
    ) -> ToolResult:
        @tool
        async def echo(text: str) -> str:
            self.steps.append(f"ran {text}")
            return text

        dispatch = tool_table([echo.bind()], middleware=middleware, **options)
        with anyio.fail_after(30):
            return await dispatch.call(ToolCall("echo", arguments or {"text": "hi"}))


async def test_n3_the_order_is_global_then_per_tool_then_hooks_then_the_tool():
    trail, hooks = Trail(), HookSet()

    @hooks.execution("echo")
    async def look(call: ToolCall, input: dict[str, Any]) -> Any:
        trail.steps.append("hook")
        return RunNormally(input)

    own = {"echo": [trail.layer("own")], "other": [trail.layer("never")]}
    await trail.call(trail.layer("one"), trail.layer("two"), hooks=hooks, tool_middleware=own)
    assert trail.steps == ["in one", "in two", "in own", "hook", "ran hi", "out own", "out two", "out one"]


@given(st.lists(st.text("abc", min_size=1, max_size=2), max_size=6))
async def test_n3_layers_nest_whatever_their_number(names: list[str]):
    trail = Trail()
    await trail.call(*map(trail.layer, names))
    assert trail.steps == [
        *(f"in {name}" for name in names),
        "ran hi",
        *(f"out {name}" for name in reversed(names)),
    ]


async def test_n2_a_middleware_may_answer_without_next():
    trail = Trail()

    @tool_middleware
    async def answer(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        return ToolResult.of_text("cached")

    assert (await trail.call(answer, trail.layer("inner"))).text == "cached"
    assert trail.steps == []


async def test_n2_a_middleware_may_change_the_result():
    async def louder(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        return ToolResult.of_text((await next()).text.upper())

    assert (await Trail().call(louder)).text == "HI"


async def test_n2_next_can_be_used_once_and_the_tool_runs_once():
    trail = Trail()

    async def twice(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        await next()
        return await next()

    result = await trail.call(twice)
    assert result.is_error and "next was already used" in result.text
    assert trail.steps == ["ran hi"]


async def test_n2_next_is_used_up_even_by_a_call_that_was_refused():
    trail = Trail()

    async def insist(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        try:
            return await next(call.with_arguments({"text": 5}))  # type: ignore[dict-item]
        except Exception:
            return await next()

    result = await trail.call(insist)
    assert result.is_error and "next was already used" in result.text
    assert trail.steps == []


async def test_n2_concurrent_use_of_next_runs_the_tool_once():
    trail, faults = Trail(), list[str]()

    async def both(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        async def once() -> None:
            try:
                await next()
            except Exception as fault:
                faults.append(type(fault).__name__)

        async with anyio.create_task_group() as group:
            group.start_soon(once)
            group.start_soon(once)
        return ToolResult.of_text("")

    await trail.call(both)
    assert (trail.steps, faults) == (["ran hi"], ["StateError"])


async def test_n2_an_edited_call_runs_and_keeps_what_the_caller_sent():
    trail, seen = Trail(), list[Any]()

    async def edit(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        return await next(call.with_arguments({"text": "edited"}))

    async def look(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(call.original)
        return await next()

    assert (await trail.call(edit, look)).text == "edited"
    assert seen == [{"text": "hi"}]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("edited", [5, None, "\ud800"])
async def test_n2_arguments_that_no_longer_fit_do_not_run(in_place: bool, edited: Any):
    trail = Trail()

    async def edit(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        if in_place:
            call.arguments["text"] = edited
            call.arguments["other"] = 1
            return await next()
        return await next(replace(call, arguments={"text": edited, "other": 1}))

    result = await trail.call(edit, trail.layer("inner"))
    assert result.is_error and "Invalid arguments for echo" in result.text
    assert trail.steps == []


async def test_n2_a_middleware_that_raises_tells_the_model_nothing_of_it():
    trail = Trail()

    async def fail(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        raise RuntimeError("the password is 12345")

    result = await trail.call(trail.layer("outer"), fail)
    assert result.is_error and "12345" not in result.text
    assert result.text == "echo could not be run because of a fault of the server"
    assert trail.steps == ["in outer", "out outer"]


async def test_n2_a_middleware_sees_what_the_tool_says_of_itself():
    seen: list[Any] = []

    async def look(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(next.definition)
        return await next()

    await Trail().call(look, look)
    assert [definition.name for definition in seen] == ["echo", "echo"]
    assert seen[0].input_schema["required"] == ["text"]


async def test_n2_each_call_has_a_next_of_its_own():
    seen: list[CallNext] = []

    async def look(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        seen.append(next)
        return await next()

    @tool
    async def echo(text: str) -> str:
        return text

    dispatch = tool_table([echo.bind()], middleware=[look])
    for _ in range(3):
        assert (await dispatch.call(ToolCall("echo", {"text": "a"}))).text == "a"
    assert len({id(next) for next in seen}) == 3
