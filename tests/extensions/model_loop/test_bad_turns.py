"""Turns, states and results that are not what they should be: told, and nothing has moved (L14, L22, A16)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_toolset import HookSet, RunNormally, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.errors import RoundError
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
async def show(x: dict[str, Any]) -> str:
    """Show nothing."""
    return "shown"


VIEW = Toolset(add, show).view()
CALL = ToolCall("add", {"a": 1}, "1")


def deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"a": made}
    return made


def said(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("id", "name", "arguments"),
    [
        (1, "add", "{}"),
        (["1"], "add", "{}"),
        (None, "add", "{}"),
        ("1", None, "{}"),
        ("1", 7, "{}"),
        ("1", "add", 5),
    ],
)
def test_l14_a_call_that_cannot_be_told_from_others_is_no_call(id: Any, name: Any, arguments: Any):
    with pytest.raises(RoundError):
        ToolRound.from_openai(said(id, name, arguments), VIEW)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("add", None, "1"),  # pyright: ignore[reportArgumentType]
        ToolCall("add", [1], "1"),  # pyright: ignore[reportArgumentType]
        ToolCall("add", {"a": 1}, ["1"]),  # pyright: ignore[reportArgumentType]
        ToolCall("show", deep(100_000), "1"),
        ToolCall("show", {}, "1", original=deep(100_000)),
    ],
)
def test_l14_a_plain_call_without_usable_arguments_or_id_is_refused(call: ToolCall):
    with pytest.raises(RoundError):
        ToolRound.from_calls([call], VIEW)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "NaN",
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":1}x',
        '{"a":"\\ud800"}',
        '{"x":' * 5000 + "1" + "}" * 5000,
    ],
)
async def test_l22_arguments_that_are_no_object_of_json_are_recovered_from(text: str):
    plan = ToolRound.from_openai(said("1", "add", text), VIEW).plan
    assert not plan.pending
    (done,) = plan.commit().results
    assert "Invalid arguments for add" in done.result.text


@pytest.mark.parametrize("state", [None, [], "x", 5, {}, {"format": []}])
def test_a16_what_is_no_state_is_said_to_be_none(state: Any):
    with pytest.raises(RoundError, match="the state of a round"):
        ToolRound.from_state(state, VIEW)


@pytest.mark.parametrize("given", ["x", None, 5, {"id": "1"}])
async def test_l14_what_is_no_result_is_refused_and_nothing_moves(given: Any):
    plan = ToolRound.from_calls([CALL], VIEW).plan
    await plan.run_pending()
    before = json.dumps(plan.to_state())
    with pytest.raises(RoundError, match=r"make one with CallResult\.of"):
        plan.commit([*plan.results, given])
    assert json.dumps(plan.to_state()) == before
    assert len(plan.commit().results) == 1


async def test_f40_arguments_too_deep_to_copy_are_the_caller_s_fault():
    hooks = HookSet()

    @hooks.execution("*")
    async def keep(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    async with ToolsetServer(Toolset(show), hooks=hooks) as server:
        result = await server.call_tool("show", {"x": deep(100_000)})
        assert result.is_error and "nested too deeply" in result.text
        assert (await server.call_tool("show", {"x": deep(50)})).text == "shown"


async def test_l17_a_hook_that_registers_hooks_is_asked_by_the_set_as_it_was():
    hooks, asked = HookSet(), list[str]()

    @hooks.execution("add")
    async def first(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        asked.append(call.id)

        @hooks.execution("add")
        async def later(call: ToolCall, input: dict[str, Any]) -> RunNormally:
            return RunNormally({**input, "b": 100})

        return RunNormally(input)

    plan = await ToolRound.from_calls([CALL], VIEW).apply(hooks)
    (done,) = (await plan.run_pending()).results
    assert (asked, done.result.structured) == (["1"], {"result": 2})
