"""The program on the page of processes is killed in the middle of one, and run again (J4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.support.asking import text_of

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "processes" / "imports.py"
PAGE = ROOT / "docs" / "processes.md"


def surroundings(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "IMPORTS": str(folder / "imports.sqlite3")}


def ran(folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), "demo"],
        env=surroundings(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stdout


@pytest.mark.needs("processes")
def test_j4_the_program_that_follows_a_killed_one_shows_the_lost_process(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for told in (ran(tmp_path), ran(tmp_path)):
        assert f"```text\n{told}```" in page


@pytest.mark.needs("processes")
@pytest.mark.anyio
async def test_j4_over_stdio_the_next_client_lists_the_processes_of_the_one_before(tmp_path: Path) -> None:
    command = StdioServerParameters(command=sys.executable, args=[str(PROGRAM)], env=surroundings(tmp_path))
    with anyio.fail_after(120):
        async with Client(stdio_client(command), mode="legacy") as client:
            id = text_of(await client.call_tool("start_import", {"rows": 1}))
            assert text_of(await client.call_tool("wait_for_import", {"id": id})) == "1 rows copied"
        async with Client(stdio_client(command), mode="legacy") as client:
            [shown] = (await client.call_tool("imports", {})).structured_content["result"]
    assert (shown["id"], shown["state"]) == (id, "done")
