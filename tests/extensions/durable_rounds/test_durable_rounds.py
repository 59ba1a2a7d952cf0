"""A loop in DBOS whose process is killed goes on in another one, and no call of it happens twice (J5)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS
from tests.support.warm import Warm, warm_process

from mcp_toolset import Toolset, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import DurableRounds

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "durable-loops.md").read_text()


@pytest.fixture(scope="module")
def durable() -> Generator[Warm]:
    """Starts programs that use DBOS at once."""
    with warm_process(("dbos", "mcp_toolset.extensions.durable_rounds")) as started:
        yield started


def ran(durable: Warm, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = durable.command(str(program), *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_j5_a_killed_loop_goes_on_and_no_call_of_it_happens_twice(tmp_path: Path, durable: Warm) -> None:
    bills = Path(__file__).with_name("bills.py")
    for place, bill in (("in", "1"), ("after", "2")):
        killed = ran(durable, bills, str(tmp_path), "--die", place, bill)
        assert killed.returncode == 128 + signal.SIGKILL, killed.stderr
    ended = ran(durable, bills, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    zero, one, two, three, signed = json.loads(ended.stdout.splitlines()[-1])
    assert (zero, two, three, signed) == ("paid 0", "paid 2", "paid 3", "yes")
    assert "its outcome is not known" in one
    assert (tmp_path / "paid.txt").read_text().split() == ["0", "1", "2", "3"]


def test_j5_the_program_of_the_page_pays_each_bill_once(tmp_path: Path, durable: Warm) -> None:
    program = ROOT / "examples" / "durable" / "loop.py"
    told = ran(durable, program, str(tmp_path)).stdout
    assert f"```text\n{told}```" in PAGE
    assert ran(durable, program, str(tmp_path)).stdout == told
    assert (tmp_path / "paid.txt").read_text() == "north 30\nsouth 12\n"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.anyio
async def test_j5_a_durable_round_outside_of_a_workflow_is_refused(tmp_path: Path) -> None:
    async with DurableRounds(Toolset(add), tmp_path / "calls.sqlite3") as rounds:
        assert DBOS.workflow_id is None
        with pytest.raises(DefinitionError, match=r"call it in a @DBOS.workflow\(\)"):
            await rounds.openai({"role": "assistant", "content": None, "tool_calls": []})


@pytest.mark.long
def test_j5_without_dbos_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "dbos", missing)
    with pytest.raises(DefinitionError, match=r"pip install 'mcp-toolset\[dbos\]'"):
        DurableRounds(Toolset(add), tmp_path / "calls.sqlite3")
