"""Steps of a recorded call: each is done once, however often the call runs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.journaled import UUID_KEY, Caller, journaled, noted
from tests.support.warm import Warm

from mcp_toolset import ToolContext, tool
from mcp_toolset.errors import CapabilityError, UpstreamUnavailableError
from mcp_toolset.journal import JournalGuard

pytestmark = pytest.mark.anyio

KILLED = """
import os, signal, sys
import anyio
from pathlib import Path
from tests.support.journaled import UUID_KEY, Caller, journaled
from mcp_toolset import ToolContext, tool

folder, dies_in = Path(sys.argv[1]), sys.argv[2]

async def step(name: str) -> str:
    with (folder / "effects").open("a") as file:
        file.write(name + "\\n")
    if name == dies_in:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{name} done"

@tool(idempotent=True)
async def book(context: ToolContext, repeat: bool) -> str:
    found = [await context.effect("flight", step, "flight")]
    found.append(await context.effect("hotel", step, "hotel", repeat=repeat))
    return ", ".join(found)

async def main() -> None:
    async with journaled(folder / "j", book) as server:
        repeat = sys.argv[3] == "repeat"
        result = await server.call_tool("book", {"repeat": repeat}, context=Caller(UUID_KEY))
        print(result.text)

anyio.run(main)
"""


class Steps:
    """Functions with effects that are counted."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def step(self, name: str) -> dict[str, Any]:
        self.done.append(name)
        return {"name": name, "pair": (1, 2)}


ROOT = Path(__file__).parents[3]


def ran(warm: Warm, folder: Path, dies_in: str, repeat: str) -> subprocess.CompletedProcess[str]:
    words = warm.command("-c", KILLED, str(folder), dies_in, repeat)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=env, check=False)


def test_j5_a_call_that_was_killed_goes_on_after_the_steps_that_are_done(tmp_path: Path, warm: Warm) -> None:
    assert ran(warm, tmp_path, "hotel", "once").returncode == 128 + signal.SIGKILL
    told = ran(warm, tmp_path, "", "once").stdout
    assert "the step 'hotel' began at" in told and "mcp-toolset journal settle" in told
    assert (tmp_path / "effects").read_text().split() == ["flight", "hotel"]


def test_j5_a_step_that_may_be_repeated_is_done_again(tmp_path: Path, warm: Warm) -> None:
    assert ran(warm, tmp_path, "hotel", "repeat").returncode == 128 + signal.SIGKILL
    assert ran(warm, tmp_path, "", "repeat").stdout == "flight done, hotel done\n"
    assert (tmp_path / "effects").read_text().split() == ["flight", "hotel", "hotel"]


async def test_j5_a_call_that_runs_again_gets_the_values_of_its_steps(tmp_path: Path) -> None:
    steps, values, fails = Steps(), list[Any](), [True]

    @tool(idempotent=True)
    async def book(context: ToolContext) -> str:
        values.append(await context.effect("flight", steps.step, "flight"))
        if fails.pop():
            raise UpstreamUnavailableError("hotels", "it is down", sent=False)
        values.append(await context.effect("hotel", steps.step, "hotel"))
        return "booked"

    async with journaled(tmp_path / "j", book) as server:
        first = await server.call_tool("book", {}, context=Caller(UUID_KEY))
        fails.append(False)
        second = await server.call_tool("book", {}, context=Caller(UUID_KEY))
    assert first.is_error and second.text == "booked"
    assert steps.done == ["flight", "hotel"]
    assert values[0] == values[1] == {"name": "flight", "pair": [1, 2]}


async def test_u115_a_step_whose_request_was_sent_and_not_answered_is_not_done_again(tmp_path: Path) -> None:
    sent = list[int]()

    async def pays(amount: int) -> None:
        sent.append(amount)
        raise UpstreamUnavailableError("bank", "it is down", sent=True)

    @tool(idempotent=True)
    async def book(context: ToolContext) -> str:
        await context.effect("payment", pays, 5)
        return "booked"

    async with journaled(tmp_path / "j", book) as server:
        told = [await server.call_tool("book", {}, context=Caller(UUID_KEY)) for _ in range(2)]
        async with JournalGuard(tmp_path / "j") as guard:
            found = await guard.journal.records()
    assert sent == [5] and all(one.is_error for one in told)
    assert [one.standing for one in found if one.record.intent.source == "effect"] == ["unknown"]


async def test_j5_equal_keys_of_other_calls_and_callers_are_other_steps(tmp_path: Path) -> None:
    steps = Steps()

    @tool
    async def book(context: ToolContext, number: int) -> str:
        await context.effect("flight", steps.step, "flight")
        await context.effect("flight", steps.step, "flight")
        return "booked"

    async with journaled(tmp_path / "j", book) as server:
        for principal, key in (("ann", "1" * 20), ("bob", "1" * 20), ("ann", "2" * 20)):
            await server.call_tool("book", {"number": 1}, context=Caller(key, principal=principal))
    assert steps.done == ["flight"] * 3


async def test_j5_a_step_at_the_same_time_is_refused_with_the_mend(tmp_path: Path) -> None:
    may_end, told = anyio.Event(), list[str]()

    async def slow() -> None:
        await may_end.wait()

    @tool
    async def book(context: ToolContext) -> str:
        async def one() -> None:
            try:
                await context.effect("flight", slow)
            except Exception as fault:
                told.append(str(fault))
                may_end.set()

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        return "booked"

    async with journaled(tmp_path / "j", book) as server:
        with anyio.fail_after(30):
            result = await server.call_tool("book", {}, context=Caller(UUID_KEY))
    assert result.text == "booked"
    assert told == ["the step 'flight' runs already; give each step of a call a key of its own"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("", 1, "1 to 400 characters, not 0"), ("k" * 401, 1, "not 401"), ("k", object(), "has no JSON form")],
)
async def test_j5_what_cannot_be_recorded_is_told(tmp_path: Path, key: str, value: Any, told: str) -> None:
    async def step() -> Any:
        return value

    @tool
    async def book(context: ToolContext) -> str:
        await context.effect(key, step)
        return "booked"

    async with journaled(tmp_path / "j", book) as server:
        result = await server.call_tool("book", {}, context=Caller(UUID_KEY))
    assert result.is_error and told in result.text


async def test_j5_a_value_that_is_too_long_is_not_kept(tmp_path: Path) -> None:
    steps, texts = Steps(), list[str]()

    async def long() -> str:
        steps.done.append("long")
        return "x" * 3000

    @tool(idempotent=True)
    async def book(context: ToolContext) -> str:
        for _ in range(2):
            texts.append(await context.effect("long", long))
        return "booked"

    async with journaled(tmp_path / "j", book, max_result_bytes=2000) as server:
        result = await server.call_tool("book", {}, context=Caller(UUID_KEY))
    assert result.is_error and "is done, and its value of 3002 bytes was not kept" in result.text
    assert steps.done == ["long"] and texts == ["x" * 3000]


async def test_j5_without_a_journal_a_step_is_refused_with_the_mend() -> None:
    steps = Steps()

    @tool
    async def book(context: ToolContext) -> str:
        await context.effect("flight", steps.step, "flight")
        return "booked"

    with pytest.raises(CapabilityError, match="grant it with a journal that records the tool"):
        await book.execute({})
    assert steps.done == []


async def test_j5_a_step_that_a_person_has_settled_gives_the_text(tmp_path: Path) -> None:
    found = list[Any]()

    async def dies() -> None:
        raise RuntimeError("the connection broke")

    @tool(idempotent=True)
    async def book(context: ToolContext) -> str:
        found.append(await context.effect("flight", dies))
        raise UpstreamUnavailableError("hotels", "it is down", sent=False)

    async with journaled(tmp_path / "j", book) as server, JournalGuard(tmp_path / "j") as guard:
        journal = guard.journal
        first = await server.call_tool("book", {}, context=Caller(UUID_KEY))
        assert first.is_error and noted(first) == {}
        (step,) = [one.record for one in await journal.records() if one.record.intent.source == "effect"]
        assert step.state == "unknown" and step.intent.tool == "book · flight"
        (call,) = [one.record for one in await journal.records() if one.record.intent.source == "client"]
        await journal.settle(call.intent.id, None)
        assert await journal.settle(step.intent.id, "seat 12A")
        await server.call_tool("book", {}, context=Caller(UUID_KEY))
    assert found == ["seat 12A"]
