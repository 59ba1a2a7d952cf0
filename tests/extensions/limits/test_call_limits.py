"""Limits of tools by pattern and caller: rate, budget of calls, concurrency, time, size of results."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic_core import to_json
from tests.support.refusals import waits

from mcp_toolset import (
    Identity,
    Rules,
    Tool,
    ToolBinding,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    ToolView,
    rejection_reason,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.policy import CallLimits, Limits

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
        self.rules = Rules(guards=[guard])
        outputs = {"read": None, "delete": None, "rows": OUTPUT}
        tools = Toolset(*(Tool.from_schema(name, {}, self.run, output=one) for name, one in outputs.items()))
        self.view = ToolView(replace(one, source="git") for one in tools.prefixed("git").view().values())

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        self.ran += 1
        self.running += 1
        if self.hold is not None:
            await self.hold.wait()
        self.running -= 1
        return ToolResult(self.wire)

    async def call(self, tool: str = "git_read", caller: ToolContext = ALICE) -> ToolResult:
        with anyio.fail_after(30):
            return await self.view.execute(tool, {}, caller, rules=self.rules)

    async def refused(self, tool: str = "git_read", caller: ToolContext = ALICE) -> float:
        """Make a call that does not run, and return the seconds after which it may be made again."""
        before = self.ran
        result = await self.call(tool, caller)
        after = waits(result)
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
    def kept() -> list[object]:
        gc.collect()
        return [one for one in gc.get_objects() if issubclass(type(one), anyio.Semaphore)]

    bench, before = Bench({"*": Limits(concurrency=1)}), kept()
    for number in range(3):
        await bench.call(caller=Caller(f"caller {number}"))
    assert bench.ran == 3 and len(kept()) == len(before)


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


def offered(name: str, server: str = "", own: str = "", **hints: Any) -> ToolBinding:
    """A tool as a server has it: its own, or that of a mounted server, which has another name for it."""
    (made,) = Toolset(Tool.from_schema(own or name, {}, **hints)).view().values()
    return replace(made, name=name, source=server)


def stated(
    limits: Any, tool: ToolBinding, caller: Identity | None = None, servers: Any = None
) -> dict[str, tuple[Any, str]]:
    """The limits of a tool for a caller, each with its place."""
    server = ToolsetServer(Toolset(), rules=Rules(guards=[CallLimits(limits, servers)]))
    return {one.key: (one.value, one.place) for one in server.limits_of(tool, caller)}


def said(*of: Any, **options: Any) -> dict[str, Any]:
    return {key: value for key, (value, _) in stated(*of, **options).items()}


def test_i8_the_most_specific_pattern_decides_about_each_limit():
    limits = {
        "*": Limits(rate="1/s", timeout=1, calls=1, concurrency=1),
        "git*": Limits(timeout=2, calls=2),
        "destructive:git*": Limits(timeout=3),
        "git/delete": Limits(calls=3, concurrency=3),
    }
    servers = {"git": {"*": Limits(concurrency=4)}, "other": {"*": Limits(rate="9/s")}}
    delete = offered("git_delete", "git", "delete", destructive=True)
    read = offered("git_read", "git", "read", read_only=True)
    expected = {"rate": "1/s", "timeout": 3, "calls": 3, "concurrency": 3}
    assert said(limits, delete, servers=servers) == expected
    expected = {"rate": "1/s", "timeout": 2, "calls": 2, "concurrency": 4}
    assert said(limits, read, servers=servers) == expected
    expected = {"rate": "1/s", "timeout": 1, "calls": 1, "concurrency": 1}
    assert said(limits, offered("local", read_only=True), servers=servers) == expected
    assert stated(limits, read, servers=servers)["concurrency"] == (4, "git.limits['*']")


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
        CallLimits({"readonly:x": Limits(rate="1/s")})
