"""Limits of tools by pattern and caller: rate, budget of calls, concurrency, time, size of results."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from mcp_toolset import (
    Rules,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    rejection_reason,
)
from mcp_toolset.calls.decision import retry_after
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.limits.call_limits import ConcurrencyLimit
from mcp_toolset.extensions.limits.limits import Limit, LimitTable
from mcp_toolset.policy import CallLimits, Limits
from mcp_toolset.security.patterns import ToolFacts
from mcp_toolset.tools.validation import checks_of

pytestmark = pytest.mark.anyio

OUTPUT = {"type": "object", "properties": {"rows": {"type": "array"}}}


class Caller(ToolContext):
    protocol_version = "2026-07-28"

    def __init__(self, principal: str | None) -> None:
        self.principal = principal


ALICE, BOB = Caller("alice"), Caller("bob")


class Bench:
    """Tools of a mounted server behind limits, with a clock of each kind."""

    def __init__(
        self, limits: dict[str, Limits], servers: dict[str, dict[str, Limits]] | None = None
    ) -> None:
        self.time, self.day = 1000.0, 86400.0 * 20_000
        self.ran, self.running = 0, 0
        self.wire: dict[str, Any] = {"content": []}
        self.hold: anyio.Event | None = None
        guard = CallLimits(limits, servers=servers, clock=lambda: self.time, wall=lambda: self.day)
        tools = [
            ToolDefinition("read"),
            ToolDefinition("delete"),
            ToolDefinition("rows", output_schema=OUTPUT),
        ]
        bindings = [
            ToolBinding(f"git_{tool.name}", tool, self.run, *checks_of(tool), source="git") for tool in tools
        ]
        self.dispatch = ToolDispatch(bindings, rules=Rules(guards=[guard]))

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.ran += 1
        self.running += 1
        if self.hold is not None:
            await self.hold.wait()
        self.running -= 1
        return ToolResult(self.wire)

    async def call(self, tool: str = "git_read", caller: ToolContext = ALICE) -> ToolResult:
        with anyio.fail_after(30):
            return await self.dispatch.call(ToolCall(tool, {}), caller)

    async def refused(self, tool: str = "git_read", caller: ToolContext = ALICE) -> float:
        """Make a call that does not run, and return the seconds after which it may be made again."""
        before = self.ran
        result = await self.call(tool, caller)
        after = retry_after(result)
        assert self.ran == before and rejection_reason(result) is not None and after is not None
        assert f"try again in {after:g} s" in result.text
        return after


async def test_i8_a_rate_is_of_a_pattern_and_a_caller():
    bench = Bench({"git/*": Limits(rate="2/min")})
    await bench.call()
    await bench.call("git_delete")
    assert await bench.refused() == 30
    assert await bench.refused("git_rows") == 30
    assert not (await bench.call(caller=BOB)).is_error
    bench.time += 30
    assert not (await bench.call()).is_error
    assert await bench.refused() == 30


async def test_i8_a_budget_is_used_up_until_the_day_ends_however_the_calls_are_spread():
    bench = Bench({"*": Limits(calls=3)})
    for _ in range(3):
        await bench.call()
        bench.day += 20_000
    assert await bench.refused("git_delete") == 86400 - 60_000
    assert not (await bench.call(caller=BOB)).is_error
    bench.day += 26_400
    assert not (await bench.call()).is_error
    hourly = Bench({"*": Limits(calls="1/hour")})
    await hourly.call()
    assert await hourly.refused() == 3600


async def test_i8_calls_wait_for_each_other_in_turn_and_callers_do_not():
    bench = Bench({"*": Limits(concurrency=2, timeout=600)})
    bench.hold = anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(bench.call)
            tasks.start_soon(bench.call, "git_read", BOB)
            while bench.running < 3:
                await checkpoint()
            for _ in range(20):
                await checkpoint()
            assert bench.ran == 3
            bench.hold.set()
    assert bench.ran == 6


async def test_i8_a_call_that_waits_in_vain_for_others_is_refused_and_a_cancelled_one_leaves_its_place():
    bench = Bench({"*": Limits(concurrency=1), "git_delete": Limits(timeout=0.01)})
    bench.hold = anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.call)
            while bench.running < 1:
                await checkpoint()
            assert await bench.refused("git_delete") == 1
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(bench.call)
                await checkpoint()
                given_up.cancel_scope.cancel()
            tasks.cancel_scope.cancel()
        bench.hold = None
        assert not (await bench.call()).is_error
    assert bench.ran == 2


async def test_i8_nothing_is_kept_of_callers_without_running_calls():
    limit, bench = ConcurrencyLimit(1), Bench({})
    tool = ToolDefinition("read")
    layer = partial(limit.within, 1.0)
    bound = ToolBinding("read", tool, bench.run, *checks_of(tool))
    bench.dispatch = ToolDispatch([bound], middleware=[layer])
    for number in range(3):
        await bench.call("read", Caller(f"caller {number}"))
    assert bench.ran == 3 and not limit._running


async def test_i8_a_call_has_the_time_of_the_most_specific_pattern():
    bench = Bench({"git/*": Limits(timeout=0.01), "*": Limits(timeout=600)})
    bench.hold = anyio.Event()
    assert "gave no answer within 0.01 s" in (await bench.call()).text


@pytest.mark.parametrize("text", ["a" * 5000, "ä€😀" * 800, '"\\\n' * 2000])
async def test_i8_a_long_result_is_cut_to_its_bytes_and_says_so(text: str):
    bench = Bench({"*": Limits(result_bytes=1000)})
    image = {"type": "image", "data": "A" * 3000, "mimeType": "image/png"}
    bench.wire = {"content": [image, {"type": "text", "text": text}], "structuredContent": {"long": text}}
    result = await bench.call()
    assert not result.is_error and "may take 1000: the rest is cut off" in result.content[-1]["text"]
    assert 500 < len(to_json(result.content[:-1])) <= 1000 and text.startswith(result.content[0]["text"])
    bench.wire = {"content": [], "structuredContent": {"rows": ["x" * 2000]}}
    promised = await bench.call("git_rows")
    assert promised.is_error and "may take 1000; ask for less" in promised.text
    bench.wire = {"content": [{"type": "text", "text": "short"}]}
    assert (await bench.call()).text == "short"
    bench.wire = {"resultType": "input_required", "inputRequests": {"x": {"method": "y" * 2000}}}
    assert (await bench.call()).wire == bench.wire


async def test_i8_a_tool_without_limits_has_nothing_around_it():
    guard = CallLimits({"read": Limits(rate="1/s")})
    definition = ToolDefinition("delete")

    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text("ran")

    binding = ToolBinding("delete", definition, run, *checks_of(definition))
    assert not guard.layers(binding) and guard.gate(binding) is None


def found(table: LimitTable, tool: ToolFacts) -> dict[str, Any]:
    return {limit.key: limit.value for limit in table.of(tool)}


def test_i8_the_most_specific_pattern_decides_about_each_limit():
    table = LimitTable(
        {
            "*": Limits(rate="1/s", timeout=1, calls=1, concurrency=1),
            "git*": Limits(timeout=2, calls=2),
            "destructive:git*": Limits(timeout=3),
            "git/delete": Limits(calls=3, concurrency=3),
        },
        {"git": {"*": Limits(concurrency=4)}, "other": {"*": Limits(rate="9/s")}},
    )
    delete = ToolFacts("git_delete", "", "git", "delete", frozenset({"destructive"}))
    assert found(table, delete) == {"rate": "1/s", "timeout": 3, "calls": 3, "concurrency": 3}
    read = ToolFacts("git_read", "", "git", "read")
    assert found(table, read) == {"rate": "1/s", "timeout": 2, "calls": 2, "concurrency": 4}
    local = ToolFacts("local")
    assert found(table, local) == {"rate": "1/s", "timeout": 1, "calls": 1, "concurrency": 1}
    assert Limit("git.limits['*']", "concurrency", 4) in table.of(read)


@pytest.mark.parametrize(
    ("wrong", "mend"),
    [
        ({"rate": "60/mn"}, "did you mean `60/min`"),
        ({"rate": "60/minutes"}, "did you mean `60/minute`"),
        ({"rate": "0/min"}, "positive whole number per"),
        ({"rate": "-1/min"}, "positive whole number per"),
        ({"rate": "1.5/min"}, "positive whole number per"),
        ({"rate": "60"}, "positive whole number per"),
        ({"rate": "6٠/min"}, "positive whole number per"),
        ({"rate": 60}, "a text such as `60/min`"),
        ({"calls": 0}, "positive whole number"),
        ({"calls": True}, "positive whole number"),
        ({"concurrency": 0}, "positive whole number"),
        ({"concurrency": 1.5}, "positive whole number"),
        ({"concurrency": -1}, "positive whole number"),
        ({"concurrency": "4"}, "positive whole number"),
        ({"result_bytes": 0}, "positive whole number"),
        ({"timeout": 0}, "positive number of seconds"),
        ({"timeout": float("nan")}, "positive number of seconds"),
        ({"timeout": float("inf")}, "positive number of seconds"),
        ({"timeout": "5"}, "positive number of seconds"),
    ],
)
def test_i8_a_limit_that_cannot_be_used_is_an_error_that_says_what_to_write(wrong: dict[str, Any], mend: str):
    with pytest.raises(DefinitionError, match=mend):
        Limits(**wrong)


def test_i8_a_pattern_that_names_nothing_is_an_error():
    with pytest.raises(DefinitionError, match="did you mean `readOnly:x`"):
        LimitTable({"readonly:x": Limits(rate="1/s")})
