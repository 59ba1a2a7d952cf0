"""A session of the sandbox serves one run; the next is prepared beforehand and keeps no run waiting."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest
from tests.support.asking import Person
from tests.support.code_client import CodeClient, code_client, workers

from mcp_toolset import ToolContext, Toolset, tool
from mcp_toolset.code import CodeMode

pytestmark = pytest.mark.anyio

SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
SPOIL = """\
import json, math
secret = 'of the first run'
def _plain(value):
    return 'spoilt'
async def _made(name, arguments):
    return 'spoilt'
async def echo(**arguments):
    return 'spoilt'
for module in (json, math):
    try:
        module.secret = secret
    except Exception:
        pass
try:
    json.dumps = lambda value, **options: 'spoilt'
except Exception:
    pass
_json = None
del _text
"""
LOOK = """\
import json, math
found = []
try:
    found.append(secret)
except NameError:
    pass
for module in (json, math):
    try:
        found.append(module.secret)
    except AttributeError:
        pass
[found, await echo(text='plain')]
"""


@tool
async def echo(text: str) -> str:
    """Give a text back."""
    return text


@tool
async def order(context: ToolContext, item: str) -> dict[str, Any]:
    """Order an item in a size."""
    answer = await context.ask("Which size?", SIZE)
    return {"item": item, "size": answer.content["size"]}


TOOLS = Toolset(echo, order)


async def test_m6_nothing_of_a_run_is_there_in_the_next_one_of_the_same_process() -> None:
    async with code_client(TOOLS, "echo", code=CodeMode(workers=1)) as (client, _):
        for _ in range(3):
            await client.run(SPOIL)
            assert await client.value(LOOK) == [[], "plain"]
        assert len(workers()) == 1


async def test_m6_a_run_that_fails_leaves_the_next_one_a_clean_session() -> None:
    async with code_client(TOOLS, "echo", code=CodeMode(workers=1)) as (client, _):
        for wrong in ("secret = 1\n1 / 0", "secret = (", "secret = 1\nreturn 5\nsecret = 2"):
            await client.run(wrong)
            assert await client.value(LOOK) == [[], "plain"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_m6_a_run_goes_on_where_one_process_serves_all(mode: str) -> None:
    options: dict[str, Any] = {
        "elicitation_callback": Person({"size": "S"}, {"size": "M"}),
        "capabilities": ["ask"],
        "code": CodeMode(workers=1),
    }
    code = "[(await order(item='hat'))['size'], await echo(text='x'), (await order(item='coat'))['size']]"
    async with code_client(TOOLS, "echo", "order", mode=mode, **options) as (client, _):
        assert await client.value("1 + 1") == 2
        assert await client.value(code) == ["S", "x", "M"]
        assert await client.value("1 + 1") == 2


async def test_m6_more_runs_than_processes_all_end() -> None:
    async def one(client: CodeClient, number: int) -> None:
        code = f"await echo(text='{number}')"
        for _ in range(3):
            assert await client.value(code) == str(number)

    async with code_client(TOOLS, "echo", code=CodeMode(workers=2)) as (client, _):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(one, client, number)
        assert len(workers()) <= 2


async def test_m6_a_process_that_dies_between_runs_is_replaced() -> None:
    async with code_client(TOOLS, "echo", code=CodeMode(workers=1)) as (client, _):
        assert await client.value("1 + 1") == 2
        (pid,) = workers()
        os.kill(pid, signal.SIGKILL)
        told = await client.run("1 + 1")
        # It is found out when the next session is opened; one that was ready already ends its run.
        assert (
            told.get("value") == 2 or "the process of the sandbox died; run the code again" in told["error"]
        )
        assert await client.value("1 + 1") == 2


async def test_m6_a_server_that_closes_after_a_run_leaves_no_process() -> None:
    for runs in (1, 2, 3):
        async with code_client(TOOLS, "echo") as (client, _):
            for number in range(runs):
                assert await client.value(str(number)) == number
