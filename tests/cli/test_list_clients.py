"""`mcp-toolset list --clients`: the servers of all clients, and which of them several clients have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.cli.commandline import CommandLine, line
from tests.cli.desk import Desk

__all__ = ["line"]

UPSTREAM = Path(__file__).parents[1] / "support" / "plain_server.py"


def desk_with(root: Path, **texts: str) -> Desk:
    desk = Desk(root)
    for name, text in texts.items():
        desk.write(text, name.replace("_", "-"))  # pyright: ignore[reportArgumentType]
    return desk


def servers(**entries: object) -> str:
    return json.dumps({"mcpServers": entries})


def test_e1_every_client_is_read_and_the_same_server_is_found_in_several(tmp_path: Path) -> None:
    git = {"command": "uvx", "args": ["mcp-server-git"]}
    desk = desk_with(
        tmp_path,
        cursor=servers(git={"type": "stdio", **git}, off={"command": "x", "disabled": True}),
        claude_desktop=servers(versions=git),
        codex='[mcp_servers.git]\ncommand = "uvx"\nargs = ["mcp-server-git"]\n',
        goose="extensions:\n  developer:\n    type: builtin\n  git:\n    type: stdio\n    cmd: uvx\n",
    )
    found = desk.found()
    assert [(one.client, one.name, one.note) for one in found.servers] == [
        ("claude-desktop", "versions", ""),
        ("cursor", "git", ""),
        ("cursor", "off", "disabled"),
        ("codex", "git", ""),
        ("goose", "git", ""),
    ]
    assert found.also_in(found.servers[0]) == ["Codex", "Cursor"]
    assert sorted(found.distinct()) == ["git", "off", "versions"]


def test_e1_a_file_that_cannot_be_read_is_told_and_the_others_are_found(tmp_path: Path) -> None:
    found = desk_with(tmp_path, cursor="{", windsurf=servers(git={"command": "git"})).found()
    assert [one.client for one in found.servers] == ["windsurf"]
    assert len(found.faults) == 1 and "not valid JSON" in found.faults[0]


def test_e1_adopted_servers_are_found_behind_the_one_entry(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, cursor=servers(git={"command": "git"}))
    desk.adopt()
    assert [(one.name, one.note, one.behind) for one in desk.found().servers] == [
        ("mcp-toolset", "mcp-toolset", False),
        ("git", "", True),
    ]


def test_e1_tokens_are_counted_once_for_each_server_and_no_secret_is_shown(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    entry = {
        "command": sys.executable,
        "args": [str(UPSTREAM), '{"tools": ["echo"]}', "--token", "s3cr3t-value"],
    }
    path.write_text(servers(**{"plain": entry, "gone": {"command": "no-such-program"}, "": {"command": "x"}}))
    done = line.run("list", "--clients", "--tokens", "--json")
    rows = {row["server"]: row for row in json.loads(done.stdout)}
    assert rows["plain"]["tokens_estimate"] > 0 and rows["gone"]["tokens_estimate"] is None
    assert "command not found: no-such-program" in done.stderr
    assert (rows["plain"]["fault"], rows["gone"]["fault"]) == ("", "command not found; see mcp-toolset check")
    assert "s3cr3t-value" not in done.stdout + done.stderr


def test_u83_a_secret_of_the_environment_that_is_an_argument_too_is_not_shown(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    entry = {"command": sys.executable, "args": ["serve", "s3cr3t-value"], "env": {"API": "s3cr3t-value"}}
    path.write_text(servers(plain=entry))
    done = line.run("list", "--clients")
    assert "serve ***" in done.stdout and "s3cr3t-value" not in done.stdout + done.stderr


def test_e1_without_servers_the_clients_that_were_looked_for_are_named(line: CommandLine) -> None:
    done = line.run("list", "--clients")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no client here has a server; looked for Claude Desktop, Claude Code" in done.stdout


def test_e1_all_entries_are_counted_and_the_different_ones(line: CommandLine) -> None:
    (line.folder / ".cursor").mkdir()
    same = {"command": "uvx", "args": ["mcp-server-git"]}
    line.write(".cursor/mcp.json", servers(one=same, two=same, three={"command": "other"}))
    assert "3 servers in 1 client (2 different)" in line.run("list", "--clients").stdout.splitlines()
