"""Making a server makes what its rules need; the rest is made when it opens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_toolset import HookSet, Reject, Rules, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio

CONSTRUCTED = '''
import sys
from pathlib import Path

import mcp_toolset
from mcp_toolset import Toolset, ToolsetServer, tool

ROOT, passed = str(Path(mcp_toolset.__file__).parent), set()

def note(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(ROOT):
        passed.add(frame.f_code.co_filename)

def construct():
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return ToolsetServer(Toolset(add))

sys.setprofile(note)
construct()
sys.setprofile(None)
print(*sorted(passed), sep="\\n")
'''

MOST = 20
"""Modules that the making of a server for one function may run through."""


def test_a_server_for_one_function_is_made_by_few_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONSTRUCTED], capture_output=True, text=True, timeout=120, check=True
    )
    passed = done.stdout.split()
    assert any(one.endswith("server.py") for one in passed)
    assert len(passed) <= MOST, passed


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_rules_that_were_given_apply_whatever_a_subclass_calls_its_attributes() -> None:
    hooks = HookSet()

    @hooks.execution("*")
    async def refuse(call: object) -> Reject:
        return Reject("not here")

    class Counted(ToolsetServer):
        def __init__(self) -> None:
            super().__init__(Toolset(add), hooks=hooks)
            self._rules = Rules()

    async with Counted() as server:
        result = await server.call_tool("add", {"a": 1, "b": 2})
    assert result.text == "Rejected: not here"
