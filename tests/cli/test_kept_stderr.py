"""What a mounted server writes to stderr while a command looks at it is shown by `mcp-toolset logs`."""

from __future__ import annotations

import json
import sys

from tests.cli.commandline import CommandLine, line

__all__ = ["line"]

CRASH = "import sys; sys.exit('the licence file is missing')"


def test_u96_list_keeps_what_a_dead_server_wrote_to_stderr(line: CommandLine) -> None:
    entry = {"command": sys.executable, "args": ["-c", CRASH]}
    line.write("mcp.json", json.dumps({"mcpServers": {"dead": entry}}))
    env = {"MCP_TOOLSET_LOG": str(line.folder / "log")}
    assert line.run("list", "mcp.json", env=env).returncode == 1
    told = line.run("logs", "mcp.json", "--server", "dead", env=env)
    assert "the licence file is missing" in told.stdout, told.stderr
