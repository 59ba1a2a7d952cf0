"""What a command reads of a mounted server is kept, so that the next session knows it at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, line

__all__ = ["line"]

UPSTREAM = Path(__file__).parents[1] / "support" / "plain_server.py"


@pytest.mark.parametrize(
    "words",
    [
        ("list", ".cursor/mcp.json"),
        ("search", ".cursor/mcp.json", "echo"),
        ("list", "--clients", "--tokens"),
        ("install", "cursor", "--adopt", "--yes"),
    ],
)
def test_u94_what_a_command_reads_of_a_server_is_kept(line: CommandLine, words: tuple[str, ...]) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    entry = {"command": sys.executable, "args": [str(UPSTREAM), '{"tools": ["echo"]}']}
    path.write_text(json.dumps({"mcpServers": {"plain": entry}}))
    done = line.run(*words, env={"MCP_TOOLSET_CACHE": str(line.folder / "cache")})
    assert done.returncode == 0, done.stderr
    (kept,) = (line.folder / "cache" / "catalogs").glob("*.json")
    assert "echo" in kept.read_text()


def test_u94_adopting_reads_under_the_key_that_serving_uses(line: CommandLine) -> None:
    env = {"MCP_TOOLSET_CACHE": str(line.folder / "cache")}
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    entry = {"command": sys.executable, "args": [str(UPSTREAM), '{"tools": ["echo"]}']}
    path.write_text(json.dumps({"mcpServers": {"plain": entry}}))
    assert line.run("list", "--clients", "--tokens", env=env).returncode == 0
    assert line.run("install", "cursor", "--adopt", "--yes", env=env).returncode == 0
    assert len(list((line.folder / "cache" / "catalogs").glob("*.json"))) == 1


def test_u94_servers_that_cannot_be_read_do_not_fail_the_adoption(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    done = line.run("install", "cursor", "--adopt", "--yes")
    assert done.returncode == 0 and "restart Cursor" in done.stdout
    assert "gone" in done.stderr and "no-such-program" in done.stderr
