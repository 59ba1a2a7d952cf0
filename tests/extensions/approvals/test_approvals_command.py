"""`mcp-toolset approvals`: another process shows, grants and refuses what a running server waits for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.cli.commandline import CommandLine
from tests.support.asking import connected, text_of
from tests.support.warm import Warm

from mcp_toolset import Rules, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Approvals, Policy, PolicyGuard

pytestmark = pytest.mark.anyio


@pytest.fixture
def cli(tmp_path: Path, warm: Warm) -> CommandLine:
    return CommandLine(tmp_path, warm)


@tool
def delete(path: str, password: str = "") -> str:
    """Delete a file."""
    return f"deleted {path}"


async def waiting(client: Client, **arguments: Any) -> str:
    result = await client.call_tool("delete", arguments)
    assert result.is_error and result.meta is not None
    return result.meta["mcp-toolset/approval"]["id"]


async def test_i8_a_waiting_call_is_shown_granted_and_refused_while_the_server_runs(cli: CommandLine):
    path = cli.folder / "state" / "approvals.sqlite3"
    env = {"MCP_TOOLSET_APPROVALS": str(path)}
    server = ToolsetServer(Toolset(delete), policy=Policy(ask=["delete"]), approvals=path)
    async with connected(server, "legacy") as client:
        first = await waiting(client, path="a\u202eb", password="hunter2")
        second = await waiting(client, path="c")
        shown = cli.forked("approvals", env=env).stdout
        assert shown.splitlines()[0].split() == "ID STATE MINUTES LEFT CALLER TOOL ARGUMENTS".split()
        assert first in shown and second in shown and "pending" in shown
        assert "hunter2" not in shown and "\u202e" not in shown
        granted = cli.forked("approvals", "grant", first, "--file", str(path))
        assert granted.stdout.startswith(f"granted {first}: delete ") and not granted.returncode
        (refused,) = json.loads(cli.forked("approvals", "refuse", second, "--json", env=env).stdout)
        assert (refused["id"], refused["state"]) == (second, "refused")
        told = await client.call_tool("delete", {"path": "c"})
        assert f"approval {second} was refused" in text_of(told)
        arguments = {"path": "a\u202eb", "password": "hunter2"}
        assert text_of(await client.call_tool("delete", arguments)) == "deleted a\u202eb"


async def test_i8_what_is_listed_is_json_on_request_and_an_id_that_does_not_wait_is_told(cli: CommandLine):
    path = cli.folder / "state" / "approvals.sqlite3"
    env = {"MCP_TOOLSET_APPROVALS": str(path)}
    assert cli.run("approvals", env=env).stdout == "no call waits for an approval\n" and not path.exists()
    guard = PolicyGuard(Policy(ask=["delete"]), approvals=Approvals(path))
    assert (await Toolset(delete).execute("delete", {"path": "a"}, rules=Rules(guards=[guard]))).is_error
    (approval,) = Approvals(path).waiting()
    assert json.loads(cli.run("approvals", "list", "--json", env=env).stdout) == [asdict(approval)]
    told = cli.run("approvals", "grant", "00000000", env=env)
    assert told.returncode == 1 and "no approval 00000000 waits" in told.stderr


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["grant", "3f2a9c10"], ["refuse", "3f2a9c10"]]
)
def test_i8_a_file_that_was_named_and_is_missing_is_told_by_its_name(cli: CommandLine, words: list[str]):
    missing = cli.folder / "aprovals.sqlite3"
    told = cli.run("approvals", *words, "--file", str(missing))
    assert told.returncode == 1 and not missing.exists()
    answered = json.loads(told.stdout)["error"] if "--json" in words else told.stdout
    assert f"{missing} does not exist" in answered if "--json" in words else not answered
    assert f"{missing} does not exist" in told.stderr and "the file that the server uses" in told.stderr


@pytest.mark.parametrize("words", [["grant"], ["refuse"], ["list", "x"], ["allow", "x"]])
def test_i8_a_command_line_about_no_approval_is_a_mistake(cli: CommandLine, words: list[str]):
    assert cli.run("approvals", *words).returncode == 2


def test_i8_a_file_of_another_program_and_no_file_are_told_and_left_alone(cli: CommandLine):
    other = cli.write("other", "no database at all, " * 60)
    told = cli.run("approvals", "--file", str(other))
    assert told.returncode == 1 and "cannot be read or written" in told.stderr
    assert other.read_text() == "no database at all, " * 60
    told = cli.run("approvals", env={"MCP_TOOLSET_APPROVALS": "off"})
    assert told.returncode == 1 and "turns approvals off" in told.stderr
