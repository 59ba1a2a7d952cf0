"""What `mcp-toolset preflight` tells apart: profiles, targets that are down, names in files (K7)."""

from __future__ import annotations

import json
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


# The option is taken and has no effect: an agent starts with a profile that has no such
# tool.
@pytest.mark.needs("profiles")
def test_k7_a_tool_that_the_profile_has_not_is_missing(line: CommandLine) -> None:
    configure(line, {"db": entry(READ, DROP)}, profiles={"safe": {"tools": ["db/read"]}})
    assert line.run("preflight", "mcp.json", "--profile", "safe", "--expect", "db_read").returncode == 0
    assert line.run("preflight", "mcp.json", "--profile", "safe", "--expect", "db_drop").returncode == 12


# A misspelt profile is ready, where `list`, `call` and `serve` refuse it.
@pytest.mark.needs("profiles")
def test_k7_a_profile_that_does_not_exist_is_told(line: CommandLine) -> None:
    configure(line, {"db": entry(READ)}, profiles={"safe": {"tools": ["db/read"]}})
    done = line.run("preflight", "mcp.json", "--profile", "Safe", "--expect", "db_read")
    assert done.returncode != 0 and "Safe" in done.stderr


# Windows writes a mark at the beginning of a text file; the whole check then ends with 2.
def test_k7_a_file_of_names_may_begin_with_a_mark(line: CommandLine) -> None:
    configure(line, {"db": entry(READ)})
    (line.folder / "needs").write_bytes(b"\xef\xbb\xbfdb/read\r\n")
    assert line.run("preflight", "mcp.json", "--expect-file", "needs").returncode == 0
