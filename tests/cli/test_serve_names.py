"""`serve --state FILE` and `serve --client-prefix TEXT`: what tools are called, and what is remembered."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from tests.cli.commandline import PATIENCE, CommandLine, environment, line

__all__ = ["line"]

pytestmark = pytest.mark.anyio


async def served(line: CommandLine, *arguments: str) -> list[str]:
    """The names that a client of the real command sees."""
    program, *rest = line.command("serve", *arguments)
    parameters = StdioServerParameters(
        command=program, args=rest, cwd=line.folder, env=environment(line.folder)
    )
    with anyio.fail_after(PATIENCE):
        async with Client(parameters, mode="auto") as client:
            return [tool.name for tool in (await client.list_tools()).tools]


def decided(state: Path, tool: str, *, member: bool) -> None:
    """Write into a state file what somebody has decided about a tool."""
    kept = json.loads(state.read_text())
    (entry,) = (one for one in kept["tools"] if one["name"] == tool)
    entry["member"] = member
    state.write_text(json.dumps(kept))


async def test_h11_membership_is_kept_in_the_file_that_is_named(line: CommandLine) -> None:
    state = line.folder / "state.json"
    before = await served(line, "kit.py", "--state", "state.json")
    assert "boom" in before and json.loads(state.read_text())["tools"]
    decided(state, "boom", member=False)
    assert await served(line, "kit.py", "--state", "state.json") == [
        name for name in before if name != "boom"
    ]
    assert await served(line, "kit.py") == before


def test_h11_a_state_file_of_something_else_ends_the_command_and_stays(line: CommandLine) -> None:
    notes = line.write("state.json", "somebody's notes")
    done = line.run("serve", "kit.py", "--state", "state.json")
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert "state.json" in done.stderr and notes.read_text() == "somebody's notes"


LONG = "tool_" + "x" * 55


def made(name: str) -> str:
    return f"@tool\ndef {name}() -> str:\n    return ''\n"


@pytest.mark.parametrize("prefix", ["", "mcp__hub__"])
async def test_h23_names_leave_room_for_what_the_client_puts_before_them(
    line: CommandLine, prefix: str
) -> None:
    line.write("app.py", f"from mcp_toolset import tool\n{made(LONG)}{made('short')}")
    long, short = await served(line, "app.py", *(["--client-prefix", prefix] if prefix else []))
    assert short == "short"
    assert len(prefix + long) <= 64 and (long == LONG) == (not prefix)
