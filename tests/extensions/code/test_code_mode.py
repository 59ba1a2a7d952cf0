"""Code mode through a server: what exists in a snippet, how its calls are made, and what comes back."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from importlib import util
from typing import Annotated, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import PlainSerializer
from tests.support.code_client import code_client, workers
from tests.support.orders import CODE, OFFICE

from mcp_toolset import (
    CallReport,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.code import CodeMode
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.code import monty_sandbox
from mcp_toolset.middleware import tool_middleware

pytestmark = pytest.mark.anyio

TASK = ("orders_list", "rates_get", "report_save")


@tool
async def add(a: int, b: int = 1) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool
async def fails(why: str) -> dict[str, Any]:
    """Fail."""
    raise ValueError(why)


@tool
async def note(text: str) -> str:
    """Say it again."""
    return text


@tool(name="get-length", read_only=True)
async def length(text: str) -> int:
    """The length of a text."""
    return len(text)


SMALL = Toolset(add, fails, note, length)


async def test_m6_a_task_of_three_calls_is_one_run() -> None:
    async with code_client(OFFICE, *TASK) as (client, _):
        told = await client.run(CODE)
    assert told["value"]["saved"] == {"saved": "Open and late, November", "rows": 8}
    assert told["value"]["top"]["key"] == "CH/late"
    assert sorted(each["name"] for each in told["calls"]) == sorted(TASK)
    assert all(each["ok"] and each["ms"] >= 0 for each in told["calls"])


async def test_m6_two_tools_stand_beside_the_four_and_the_list_never_moves() -> None:
    async with code_client(SMALL) as (client, _):
        before = (await client.client.list_tools()).tools
        await client.grant("add")
        await client.run("await add(a=1)")
        after = (await client.client.list_tools()).tools
    assert [one.name for one in before][-2:] == ["run_code", "run_read_only_code"] and len(before) == 6
    assert before == after
    hints: dict[str, Any] = {one.name: one.annotations for one in before}
    assert hints["run_code"].destructive_hint is True and hints["run_code"].read_only_hint is False
    assert hints["run_read_only_code"].read_only_hint is True


async def test_m6_without_code_nothing_is_added_and_a_tool_may_have_the_name() -> None:
    @tool(name="run_code")
    def other() -> str:
        """Another tool."""
        return "mine"

    async with ToolsetServer(Toolset(other, SMALL.deferred())) as server:
        assert [one.name for one in server.bindings()][:1] == ["run_code"]
        assert (await server.call_tool("run_code")).text == "mine"


async def test_m6_no_process_runs_before_the_first_snippet_and_none_after_the_close() -> None:
    async with code_client(SMALL, "add") as (client, _):
        assert workers() == []
        assert await client.value("await add(a=1)") == {"sum": 2}
        assert len(workers()) == 1
        assert await client.value("await add(a=2)") == {"sum": 3}
        assert len(workers()) == 1
    assert workers() == []


async def test_m6_only_granted_tools_exist() -> None:
    async with code_client(SMALL, "add") as (client, _):
        told = await client.run("await note(text='x')")
        assert "NameError" in told["error"] and "Functions in scope: add" in told["error"]
        for name in ("call_tool", "search_tools", "run_code", "open_session"):
            assert "NameError" in (await client.run(f"await {name}(code='1')"))["error"]
        assert "no live grant" in (await client.run("1", grants=["note.AAAAAAAAAAAAAAAA"]))["error"]
        assert "none: pass grants" in (await client.run("await add(a=1)", grants=[]))["error"]


async def test_m6_a_session_that_holds_grants_need_not_pass_them() -> None:
    async with code_client(SMALL, "add", mode="legacy") as (client, _):
        assert await client.value("await add(a=1)", grants=None) == {"sum": 2}
        assert "NameError" in (await client.run("await note(text='x')", grants=None))["error"]


async def test_m6_a_grant_that_is_taken_back_ends_in_the_middle_of_a_run() -> None:
    async with code_client(Toolset(add, take_back), "add", "take_back") as (client, server):
        took.append(lambda: server.grants.revoke_all())
        told = await client.run("a = await add(a=1)\nawait take_back()\nawait add(a=a['sum'])")
        again = await client.run("try:\n    await add(a=1)\nexcept RuntimeError as e:\n    r = str(e)\nr")
    assert "add" in told["error"] and "taken back" in told["error"]
    assert [(each["name"], each["ok"]) for each in told["calls"]][-1] == ("add", False)
    assert "taken back" in again["error"]


took: list[Any] = []


@tool
async def take_back() -> str:
    """Revoke every grant."""
    took.pop()()
    return "done"


async def test_m6_every_rule_holds_for_the_calls_of_code() -> None:
    hooks, seen = HookSet(), list[str]()

    @hooks.execution("add")
    async def small(call: ToolCall, input: Any) -> Any:
        return Reject("too large") if call.arguments["a"] > 9 else RunNormally({"a": 1, **call.arguments})

    @tool_middleware
    async def watched(call: ToolCall, context: ToolContext, call_next: Any) -> ToolResult:
        seen.append(call.name)
        return await call_next()

    code = (
        "said = []\nfor a in (1, 10, 'x'):\n    try:\n        said.append((await add(a=a))['sum'])\n"
        "    except RuntimeError as fault:\n        said.append(str(fault))\nsaid"
    )
    async with code_client(SMALL, "add", hooks=hooks, middleware=[watched], rules=None) as (client, server):
        said = await client.value(code)
    assert said[0] == 2 and "too large" in said[1] and "Invalid arguments for add" in said[2]
    assert seen.count("add") == 2 and "run_code" in seen


async def test_m6_every_call_of_code_is_reported_with_the_id_of_its_run() -> None:
    reports: list[CallReport] = []
    async with code_client(SMALL, "add", "fails", rules=Rules(observers=[reports.append])) as (client, _):
        await client.run("await add(a=1)\nawait add(a=2)\nawait fails(why='x')")
    inner = [each for each in reports if each.called == "call_tool"]
    assert [(each.tool, each.outcome, each.ran) for each in inner] == [
        ("add", "result", True),
        ("add", "result", True),
        ("fails", "error", True),
    ]
    runs = {each.id.partition(".")[0] for each in inner}
    assert len(runs) == 1 and [each.id.partition(".")[2] for each in inner] == ["0", "1", "2"]
    assert reports[-1].called == "run_code" and reports[-1].outcome == "error"


async def test_m6_a_failure_can_be_caught_and_what_ran_is_told() -> None:
    async with code_client(SMALL, "add", "fails") as (client, _):
        told = await client.run("print('so far')\nawait add(a=1)\nawait fails(why='broken')")
        caught = "try:\n    await fails(why='broken')\nexcept RuntimeError as e:\n    r = str(e)\nr"
        assert await client.value(caught) == "fails failed: broken"
    assert "line 3, in <module>" in told["error"] and "RuntimeError: fails failed: broken" in told["error"]
    assert __file__ not in told["error"] and told["printed"] == "so far\n"
    assert [(each["name"], each["ok"]) for each in told["calls"]] == [("add", True), ("fails", False)]


async def test_m6_read_only_code_calls_nothing_else() -> None:
    async with code_client(SMALL, "add", "get-length") as (client, _):
        assert await client.value("await get_length(text='four')", tool="run_read_only_code") == {"result": 4}
        told = await client.run("await add(a=1)", tool="run_read_only_code")
    assert "not annotated as read-only" in told["error"]


async def test_m6_a_text_comes_as_a_text_and_names_are_told_apart() -> None:
    @tool(name="get_length")
    async def shadow(text: str) -> int:
        """Not the length."""
        return -1

    async with code_client(Toolset(SMALL, shadow), "get-length", "get_length", "note") as (client, _):
        told = await client.run("await get_length(text='four')")
        names = re.findall(r"get_length_\w+", told["error"].partition("use ")[2].partition("\n")[0])
        values = [await client.value(f"(await {name}(text='four'))['result']") for name in names]
        said = await client.value("await note(text='hi')")
    assert sorted(values) == [-1, 4] and said == "hi"
    assert "several tools would be 'get_length'" in told["error"]


async def test_m6_calls_at_once_run_within_the_limit_of_parallel_calls() -> None:
    now, most = 0, 0
    enough = anyio.Event()

    @tool
    async def slow(i: int) -> int:
        """Wait for others."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            enough.set()
        await enough.wait()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        now -= 1
        return i

    code = "import asyncio\n[r['result'] for r in await asyncio.gather(*[slow(i=i) for i in range(9)])]"
    async with code_client(Toolset(slow), "slow", code=CodeMode(max_parallel=3)) as (client, _):
        assert await client.value(code) == list(range(9))
    assert most == 3


async def test_m6_a_call_that_nobody_awaits_is_told() -> None:
    async with code_client(SMALL, "add") as (client, _):
        told = await client.run("add(a=1)")
    assert "await" in told["note"] and "calls" not in told


async def test_m6_each_refusal_names_its_limit() -> None:
    async with code_client(SMALL, code=CodeMode(max_compute_seconds=0.2)) as (client, _):
        assert "`max_compute_seconds`" in (await client.run("while True: pass"))["error"]
    mode = CodeMode(
        max_compute_seconds=50,
        max_memory_mb=20,
        max_calls=3,
        max_stops=12,
        max_printed=50,
        max_value_bytes=40,
    )
    async with code_client(SMALL, "add", code=mode) as (client, _):
        assert "`max_memory_mb`" in (await client.run("x = []\nwhile True: x.append('y' * 999)"))["error"]
        told = await client.run("for i in range(9): await add(a=i)")
        assert "`max_calls`" in told["error"] and len(told["calls"]) == 3
        loop = "for i in range(99):\n    try:\n        await add(a=i)\n    except RuntimeError: pass"
        assert "`max_stops`" in (await client.run(loop))["error"]
        flood = await client.run("for i in range(999): print('x' * 9)")
        assert "`max_printed`" in flood["error"] and len(flood["printed"]) <= 50
        large = await client.run("list(range(99))")
        assert (
            "`max_value_bytes`" in large["note"]
            and large["preview"].startswith("[0, 1")
            and large["bytes"] > 40
        )


async def test_m6_a_run_ends_when_its_time_is_over_and_so_do_its_calls() -> None:
    ended = anyio.Event()

    @tool
    async def stuck() -> str:
        """Wait for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    async with code_client(Toolset(stuck, add), "stuck", "add", code=CodeMode(timeout=3)) as (client, _):
        await client.run("1")
        told = await client.run("await add(a=1)\nawait stuck()")
        assert ended.is_set()
    assert "`timeout`" in told["error"]
    assert told["calls"][0]["name"] == "add"
    assert told["calls"][1] == {
        "name": "stuck",
        "ok": False,
        "ms": told["calls"][1]["ms"],
        "error": "cancelled",
    }


def test_m6_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec

    def missing(name: str, package: str | None = None) -> Any:
        return None if name == "pydantic_monty" else found(name, package)

    monkeypatch.setattr("mcp_toolset.extensions.code.monty_sandbox.find_spec", missing)
    with pytest.raises(DefinitionError, match=r"pip install 'mcp-toolset\[code\]'"):
        ToolsetServer(SMALL.deferred(code=True))
    ToolsetServer(SMALL.deferred())
    ToolsetServer(SMALL.deferred(code=True), code=False)


def test_m6_limits_are_positive_numbers() -> None:
    for wrong in (
        {"max_compute_seconds": 0},
        {"max_calls": -1},
        {"workers": True},
        {"max_value_bytes": "many"},
    ):
        with pytest.raises(DefinitionError, match=next(iter(wrong))):
            CodeMode(**wrong)  # pyright: ignore[reportArgumentType]


async def test_m6_stubs_stand_in_place_of_definitions_on_request() -> None:
    async with code_client(OFFICE) as (client, _):
        arguments = {"ids": ["orders_list"], "stubs": True}
        result = (await client.client.call_tool("resolve_tools", arguments)).structured_content
    assert result is not None
    (one,) = result["tools"]
    assert one["stub"].startswith("class OrdersList") and one["grant"] and one.get("definition") is None


def test_m6_a_program_that_has_run_code_ends_in_order() -> None:
    program = (
        "import asyncio\n"
        "from mcp_toolset import Toolset, ToolsetServer\n"
        "async def main():\n"
        "    async with ToolsetServer(Toolset().deferred(code=True)) as server:\n"
        "        call = lambda i: server.call_tool('run_code', {'code': str(i), 'grants': []})\n"
        "        print([one.structured['value'] for one in await asyncio.gather(*map(call, range(9)))])\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, f"{list(range(9))}\n"), ended.stderr


made_on: set[threading.Thread] = set()


def noted(value: list[int]) -> list[int]:
    made_on.add(threading.current_thread())
    return value


@tool
def wide() -> Annotated[list[int], PlainSerializer(noted)]:
    """Many numbers."""
    return [0] * 1000


async def test_u113_long_results_of_calls_at_once_are_handed_over_in_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each long result that is prepared is a turn; what a worker thread can prepare takes none."""
    monkeypatch.setattr("mcp_toolset.concurrency.backoff.TURN", -1.0)
    turn, handed = 0, list[int]()
    settled = monty_sandbox._settled

    def hand_over(answer: Any) -> Any:
        handed.append(turn)
        return settled(answer)

    monkeypatch.setattr(monty_sandbox, "_settled", hand_over)
    async with code_client(Toolset(wide), "wide") as (client, _), anyio.create_task_group() as group:

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await checkpoint()

        group.start_soon(count)
        code = "import asyncio\nlen(await asyncio.gather(*[wide() for _ in range(20)]))"
        assert await client.value(code) == 20
        group.cancel_scope.cancel()
    assert len(handed) == len(set(handed)) == 20
    assert made_on and threading.current_thread() not in made_on
