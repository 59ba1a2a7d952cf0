"""Hooks that break, hang or write nonsense: nothing reaches the mounted server (F38 to F41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, calls_of, mount, names, tool

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolDefinition,
    Toolset,
    ToolsetServer,
)

pytestmark = pytest.mark.anyio
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [tool("echo", inputSchema=NUMBER), tool("other")]


def hooked(hooks: HookSet, log: Path) -> ToolsetServer:
    up = mount(log=str(log), tools=TOOLS)
    return ToolsetServer(Toolset(up), hooks=hooks)


class Unusual(Exception):
    pass


FAULTS = [ValueError("x"), Unusual(), TimeoutError(), RecursionError(), AssertionError()]


async def test_f38_a_hook_that_raises_stops_the_call(log: Path) -> None:
    hooks, faults = HookSet(), iter(FAULTS)

    @hooks.execution("echo")
    async def broken(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        raise next(faults)

    async with hooked(hooks, log) as server:
        for fault in FAULTS:
            refused = await server.call_tool("echo", {"n": 1})
            assert refused.is_error and "echo" in refused.text, fault
        assert not (await server.call_tool("other", {})).is_error
    assert calls_of(log, "echo") == []


async def test_f38_a_hook_that_raises_stops_a_deferred_call_too(log: Path) -> None:
    hooks = HookSet()

    @hooks.execution("*")
    async def broken(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        if call.name == "other":
            raise ValueError("no")
        return RunNormally(input)

    server = ToolsetServer(Toolset(mount(log=str(log), tools=TOOLS).deferred()), hooks=hooks)
    async with server:
        resolved = await server.call_tool("resolve_tools", {"ids": ["other"]})
        grant = resolved.structured["tools"][0]["grant"]
        assert (await server.call_tool("call_tool", {"grant": grant})).is_error
    assert calls_of(log, "other") == []


NO_DECISIONS: list[Any] = [None, True, {"n": 1}, "yes", RunNormally(5), RunNormally(None)]  # type: ignore[arg-type]


async def test_f38_a_hook_that_decides_nothing_stops_the_call(log: Path) -> None:
    hooks, decisions = HookSet(), iter(NO_DECISIONS)

    @hooks.execution("echo")
    async def undecided(call: ToolCall, input: dict[str, Any]) -> Any:
        return next(decisions)

    async with hooked(hooks, log) as server:
        for decision in NO_DECISIONS:
            assert (await server.call_tool("echo", {"n": 1})).is_error, decision
    assert calls_of(log, "echo") == []


async def test_f39_a_hook_that_hangs_is_given_its_deadline_and_stops_the_call(log: Path) -> None:
    hooks = HookSet(timeout=0.1)

    @hooks.execution("echo")
    async def asleep(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        await anyio.sleep_forever()
        return RunNormally(input)

    async with hooked(hooks, log) as server:
        with anyio.fail_after(SOON):
            refused = await server.call_tool("echo", {"n": 1})
        assert refused.is_error and "0.1 s" in refused.text
    assert calls_of(log, "echo") == []


INVALID: list[dict[str, Any]] = [{"n": "one"}, {}, {"m": 1}, {"n": None}]


async def test_f40_arguments_that_a_hook_made_invalid_are_refused(log: Path) -> None:
    hooks, edits = HookSet(), iter(INVALID)

    @hooks.execution("echo")
    async def edit(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        if (edited := next(edits, None)) is not None:
            return RunNormally(edited)
        # What is edited in place is checked too.
        input["n"] = "one"
        return RunNormally(input)

    async with hooked(hooks, log) as server:
        for edited in (*INVALID, "in place"):
            refused = await server.call_tool("echo", {"n": 1})
            assert refused.is_error and "Invalid arguments for echo" in refused.text, edited
    assert calls_of(log, "echo") == []


async def test_f41_a_description_hook_that_raises_hides_its_tool_alone(log: Path) -> None:
    hooks = HookSet(timeout=0.1)

    @hooks.description("echo")
    async def broken(definition: ToolDefinition) -> str | None:
        raise Unusual

    async with hooked(hooks, log) as server:
        assert names(server) == ["other"]
        assert not (await server.call_tool("other", {})).is_error


async def test_f41_f39_a_description_hook_that_hangs_hides_its_tool_alone(log: Path) -> None:
    hooks = HookSet(timeout=0.1)

    @hooks.description("echo")
    async def asleep(definition: ToolDefinition) -> str | None:
        await anyio.sleep_forever()

    with anyio.fail_after(SOON):
        async with hooked(hooks, log) as server:
            assert names(server) == ["other"]


async def test_f38_rejections_and_completions_reach_nobody_upstream(log: Path) -> None:
    hooks = HookSet()

    @hooks.execution("*")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Reject | Complete:
        return Reject("not now") if call.name == "echo" else Complete("done already")

    async with hooked(hooks, log) as server:
        assert "not now" in (await server.call_tool("echo", {"n": 1})).text
        assert (await server.call_tool("other", {})).text == "done already"
    assert calls_of(log, "echo") == calls_of(log, "other") == []
