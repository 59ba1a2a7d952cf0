"""Servers with one shared state are replicas: grants, choices, questions and counts of one hold at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.support.asking import Person

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.shared import SharedState

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


def server(url: str, *tools: Any, **options: Any) -> ToolsetServer:
    return ToolsetServer(Toolset(add, *tools), shared=SharedState(url), keep=False, **options)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def test_r1_a_grant_of_one_replica_runs_at_the_other(url: str) -> None:
    deferred = Toolset(read_invoice).deferred()
    async with server(url, deferred) as one, server(url, deferred) as other:
        resolved = await one.call_tool("resolve_tools", {"ids": ["read_invoice"]})
        grant = resolved.structured["tools"][0]["grant"]
        called = await other.call_tool("call_tool", {"grant": grant, "arguments": {"number": 7}})
        assert called.text == "invoice 7"


async def test_r1_a_tool_that_one_replica_switches_off_is_off_at_the_other(url: str) -> None:
    async with server(url) as one, server(url) as other:
        await one.choose({"add": False})
        await until(lambda: not other.tools())
        await other.choose({"add": True})
        await until(lambda: bool(one.tools()))


async def test_r1_choices_at_two_replicas_at_once_both_hold(url: str) -> None:
    async with server(url, read_invoice) as one, server(url, read_invoice) as other:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one.choose({"add": False}))
            group.start_soon(lambda: other.choose({"read_invoice": False}))
        await until(lambda: not one.tools() and not other.tools())


@pytest.mark.needs("limits")
@pytest.mark.parametrize("said", [{"rate": "2/hour"}, {"calls": "2/day"}])
async def test_r1_replicas_count_calls_together(url: str, said: Any) -> None:
    from mcp_toolset.policy import Limits

    limits = Limits(**said)
    async with server(url, limits={"add": limits}) as one, server(url, limits={"add": limits}) as other:
        each = [await a.call_tool("add", {"a": 1, "b": 1}) for a in (one, other, one, other)]
        assert [result.is_error for result in each] == [False, False, True, True]


@tool
def book(room: str) -> Any:
    """Book a room."""
    from mcp_toolset import AskUser

    return AskUser(f"Which size for {room}?")


async def test_r4_a_question_of_one_replica_is_answered_at_the_other_once(url: str) -> None:
    async with server(url, book) as one, server(url, book) as other:
        async with Client(one.lowlevel, elicitation_callback=Person()) as here:
            asked: Any = await here.session.call_tool("book", {"room": "attic"}, allow_input_required=True)
            (key,) = asked.input_requests
            answer: Any = {
                "input_responses": {key: {"action": "accept", "content": {"answer": "small"}}},
                "request_state": asked.request_state,
                "allow_input_required": True,
            }
        async with Client(other.lowlevel, elicitation_callback=Person()) as there:
            booked = await there.session.call_tool("book", {"room": "attic"}, **answer)
            assert booked.content[0].text == "small"
        async with Client(one.lowlevel, elicitation_callback=Person()) as here:
            with pytest.raises(Exception, match="call the tool again"):
                await here.session.call_tool("book", {"room": "attic"}, **answer)


SLEEPER = """
import pathlib, runpy, sys
if not pathlib.Path(sys.argv[1]).exists():
    sys.stdin.read()
sys.argv[1] = '{"tools": ["look"]}'
runpy.run_module("tests.support.plain_server", run_name="__main__")
"""


async def test_r1_a_replica_lists_at_once_what_another_one_has_learned(url: str, tmp_path: Path) -> None:
    flag = tmp_path / "up"
    flag.touch()

    def mounting() -> ToolsetServer:
        mount = RemoteToolset([sys.executable, "-c", SLEEPER, str(flag)], name="plain", cwd=ROOT)
        return ToolsetServer(Toolset(mount), shared=SharedState(url), keep=False)

    async with mounting() as one:
        names = [each["name"] for each in one.tools()]
    flag.unlink()
    server = mounting()
    async with server.opened():
        assert names and [each["name"] for each in server.tools()] == names
