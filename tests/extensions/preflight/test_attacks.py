"""Attacks on `mcp-toolset preflight`: exit codes that say what is not so (K7)."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, line
from tests.faults.harness import hostile, tool

__all__ = ["line"]

pytestmark = pytest.mark.needs("preflight")

READ, DROP = tool("read"), tool("drop", annotations={"destructiveHint": True})


def entry(*tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    command = hostile(tools=list(tools))
    return {"command": command[0], "args": command[1:], **more}


def configure(line: CommandLine, servers: dict[str, Any], **section: Any) -> None:
    line.write("mcp.json", json.dumps({"mcpServers": servers, "toolset": section}))


# Severity: high. The option is taken and has no effect: an agent starts with a profile that has no such
# tool.
@pytest.mark.needs("profiles")
def test_k7_a_tool_that_the_profile_has_not_is_missing(line: CommandLine) -> None:
    configure(line, {"db": entry(READ, DROP)}, profiles={"safe": {"tools": ["db/read"]}})
    assert line.run("preflight", "mcp.json", "--profile", "safe", "--expect", "db_read").returncode == 0
    assert line.run("preflight", "mcp.json", "--profile", "safe", "--expect", "db_drop").returncode == 12


# Severity: high. A misspelt profile is ready, where `list`, `call` and `serve` refuse it.
@pytest.mark.needs("profiles")
def test_k7_a_profile_that_does_not_exist_is_told(line: CommandLine) -> None:
    configure(line, {"db": entry(READ)}, profiles={"safe": {"tools": ["db/read"]}})
    done = line.run("preflight", "mcp.json", "--profile", "Safe", "--expect", "db_read")
    assert done.returncode != 0 and "Safe" in done.stderr


# Severity: medium. 10 means "try again later", 12 "correct the name": a script gives up on a server that
# restarts.
@pytest.mark.parametrize(
    "target",
    [
        ["http://127.0.0.1:9/mcp"],
        ["--", "/no/such/program"],
        ["--", sys.executable, "-c", "raise SystemExit(1)"],
    ],
    ids=["address", "absent", "ends"],
)
def test_k7_a_tool_of_a_target_that_is_down_is_not_missing(line: CommandLine, target: list[str]) -> None:
    done = line.run("preflight", "--expect", "jira_search", *target)
    assert done.returncode == 10, done.stdout


# Severity: low (the page does not promise it). "Ready" for an agent that may call nothing: `deny: ["*"]`,
# and the table says `ok`, 2 tools.
def test_k7_a_server_of_which_every_tool_is_denied_is_not_ready(line: CommandLine) -> None:
    configure(line, {"db": entry(READ, DROP)}, permissions={"deny": ["*"]})
    assert line.run("preflight", "mcp.json", "--expect", "db").returncode == 14


# Severity: low. Windows writes a mark at the beginning of a text file; the whole check then ends with 2.
def test_k7_a_file_of_names_may_begin_with_a_mark(line: CommandLine) -> None:
    configure(line, {"db": entry(READ)})
    (line.folder / "needs").write_bytes(b"\xef\xbb\xbfdb/read\r\n")
    assert line.run("preflight", "mcp.json", "--expect-file", "needs").returncode == 0


# Severity: low. A mistake in the command line is told as a server that is down ("deadline must not be
# NaN").
@pytest.mark.parametrize("seconds", ["inf", "nan"])
def test_k7_a_time_that_is_no_number_is_a_mistake_of_the_line(line: CommandLine, seconds: str) -> None:
    configure(line, {"db": entry(READ)})
    assert line.run("preflight", "mcp.json", "--timeout", seconds).returncode == 2


# Severity: medium. "A server is started only if a name can be of it", but its programs for secrets run, one
# after the other, each with 30 seconds.
@pytest.mark.needs("secret_commands")
def test_k7_a_server_that_is_not_needed_runs_no_program_for_its_secrets(line: CommandLine) -> None:
    mark = line.folder / "ran"
    other = entry(READ, env={"A": f"${{command:touch {mark}}}"})
    configure(line, {"db": entry(READ), "other": other})
    assert line.run("preflight", "mcp.json", "--expect", "db/read").returncode == 0
    assert not mark.exists()
