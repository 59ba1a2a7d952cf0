"""What is run around a snippet, and runs in another sandbox than the one that comes with the package."""

from __future__ import annotations

import ast
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.code import CodeMode
from mcp_toolset.extensions.code.monty_sandbox import keeping_value, source_of, without_marks
from mcp_toolset.extensions.code.sandbox import CallAnswer, Called, Ended, Paused, Program
from mcp_toolset.tools.python_stub import Functions

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("x = 3\nx", 3),
        ("x = 3; x", 3),
        ("x = 3\nx;", 3),
        ("x = 3\nx  # a comment", 3),
        ("[\n  1,\n  2,\n]\n\n# the end\n", [1, 2]),
        ("1, 2", (1, 2)),
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
    ],
)
def test_m6_the_value_of_a_snippet_is_that_of_its_last_line(code: str, value: Any) -> None:
    scope: dict[str, Any] = {"_value": None}
    kept = keeping_value(code)
    exec(compile(kept, "code", "exec"), scope)
    assert scope["_value"] == value
    assert kept.count("\n") == code.count("\n")


@pytest.mark.parametrize("code", ["x = (", "'''", "  x\n y", "x = 5 +", "\x00", "(" * 10_000, "`"])
def test_m6_what_is_not_python_is_left_to_the_sandbox(code: str) -> None:
    assert isinstance(keeping_value(code), str)


def test_m6_a_lone_surrogate_in_a_snippet_is_a_question_mark() -> None:
    assert "'?'" in source_of("'\ud800'", Functions([])).text


def test_m6_a_traceback_shows_the_line_as_it_was() -> None:
    assert without_marks(keeping_value("await add(a=1)")) == "await add(a=1)"
    assert without_marks("add(a=1)") == "add(a=1)"


def test_m6_what_stands_before_a_snippet_is_python_and_its_places_are_known() -> None:
    code = "x = 'ü'\nx"
    source = source_of(code, Functions(["add", "get-x", "get_x", "list"]))
    encoded = source.text.encode()
    kept = keeping_value(code)
    assert encoded[: source.end].decode().endswith(kept)
    before = ast.parse(encoded[: source.end].decode().removesuffix(kept))
    names = {each.name for each in before.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert {"add", "list_", "get_x"} <= names
    assert source.text.split("\n")[source.lines] == "x = 'ü'"


class Calculator:
    """A sandbox of the host's own: each line of its language is `NAME NUMBER NUMBER`."""

    def __init__(self) -> None:
        self.closed = 0

    @asynccontextmanager
    async def running(self, program: Program) -> AsyncGenerator[Calculation]:
        yield Calculation(program)

    async def close(self) -> None:
        self.closed += 1


class Calculation:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.printed = program.printed
        self.found: dict[int, Any] = {}

    async def step(self, answers: Mapping[int, CallAnswer]) -> Paused | Ended:
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
