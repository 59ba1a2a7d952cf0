"""What a snippet comes to, and a sandbox of the host's own in place of ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.code_client import code_client

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.code import CodeMode
from mcp_toolset.extensions.code.sandbox import Called, Ended, Paused

pytestmark = pytest.mark.anyio


VALUES: list[tuple[str, Any]] = [
    ("1 + 1", 2),
    ("x = 3\nx", 3),
    ("x = 3; x", 3),
    ("x = 3\nx;", 3),
    ("x = 3\nx  # a comment", 3),
    ("[\n  1,\n  2,\n]\n\n# the end\n", [1, 2]),
    ("1, 2", [1, 2]),
    ("lambda_ = 1\nlambda_", 1),
    ("(lambda: 4)()", 4),
    ("f'{1 + 1}'", "2"),
    ("{'a': 1}", {"a": 1}),
    ("x = {'a': 1}\nx['a'] == 1", True),
    ("return 5", 5),
    ("x = 3", None),
    ("x: int = 3", None),
    ("x = 3\nx += 1", None),
    ("if True:\n    5", None),
    ("for i in []:\n    i\n", None),
    ("def f():\n    return 1", None),
    ("import json", None),
    ("pass", None),
    ("", None),
    ("# nothing", None),
    ("'ä' + 'ö'", "äö"),
    ("'''a\nb'''", "a\nb"),
    ("x = 1\nx if x else 2", 1),
    ("not 0", True),
]


async def test_m6_the_value_of_a_snippet_is_that_of_its_last_line() -> None:
    async with code_client(Toolset(add), "add") as (client, _):
        for code, value in VALUES:
            told = await client.run(code)
            assert (told.get("value"), told.get("error")) == (value, None), code


async def test_m6_what_is_not_python_is_told_and_a_line_is_shown_as_it_was_written() -> None:
    async with code_client(Toolset(add), "add") as (client, _):
        for code in ("x = (", "'''", "  x\n y", "x = 5 +", "\x00", "`"):
            assert "SyntaxError" in (await client.run(code))["error"], code
        told = await client.run("x = 'ü'\nawait add(a='one', b=x)")
    assert "line 2" in told["error"] and "\n    await add(a='one', b=x)\n" in told["error"]


async def test_m6_functions_are_named_as_python_can_name_them() -> None:
    names = ("get-x", "list")
    tools = Toolset(*(tool(name=name, read_only=True)(nothing) for name in names))
    async with code_client(tools, *names) as (client, _):
        assert await client.value("[await get_x(), await list_()]") == ["nothing", "nothing"]


def nothing() -> str:
    """Say nothing."""
    return "nothing"


class Calculator:
    """A sandbox of the host's own: each line of its language is `NAME NUMBER NUMBER`."""

    def __init__(self) -> None:
        self.closed = 0

    @asynccontextmanager
    async def running(self, program: Any) -> AsyncGenerator[Calculation]:
        yield Calculation(program)

    async def close(self) -> None:
        self.closed += 1


class Calculation:
    def __init__(self, program: Any) -> None:
        self.program = program
        self.printed = program.printed
        self.found: dict[int, Any] = {}

    async def step(self, answers: Mapping[int, Any]) -> Paused | Ended:
        self.found |= {id: each.value or each.error for id, each in answers.items()}
        lines = [line.split() for line in self.program.code.splitlines()]
        if len(self.found) == len(lines):
            return Ended(str([self.found[id]["result"] for id in range(len(lines))]))
        self.printed += "asked\n"
        calls = [Called(id, name, {"a": int(a), "b": int(b)}) for id, (name, a, b) in enumerate(lines)]
        fresh = () if self.found else tuple(calls)
        return Paused(fresh, tuple(each.id for each in calls if each.id not in self.found))

    def dump(self) -> bytes:
        return b""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_m6_another_sandbox_takes_the_place_of_the_one_that_comes_along() -> None:
    sandbox = Calculator()
    server = ToolsetServer(Toolset(add).deferred(), code=CodeMode(sandbox=sandbox))
    async with server:
        found = await server.call_tool("resolve_tools", {"ids": ["add"]})
        grants = [one["grant"] for one in found.structured["tools"]]
        told = await server.call_tool("run_code", {"code": "add 1 2\nadd 3 4", "grants": grants})
    assert told.structured["value"] == [3, 7] and len(told.structured["calls"]) == 2
    assert sandbox.closed == 1
