"""A configuration may name `mcp-toolset` itself, also where a desktop's `PATH` does not have it."""

from __future__ import annotations

import json

from tests.cli.commandline import CommandLine, line

__all__ = ["line"]


def test_u99_a_server_that_is_mcp_toolset_starts_under_the_path_of_a_desktop(line: CommandLine) -> None:
    entry = {"command": "mcp-toolset", "args": ["serve", "calc.py"], "env": {"PATH": "/usr/bin:/bin"}}
    line.write("mcp.json", json.dumps({"mcpServers": {"calc": entry}}))
    assert line.run("check", "mcp.json").returncode == 0
    # A process of its own: threads of other tests in this one are not those of the command.
    listed = json.loads(line.process("list", "mcp.json", "--json").stdout)
    assert listed["servers"]["calc"]["state"] == "ready"
