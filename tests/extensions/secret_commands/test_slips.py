"""Slips in `${command:…}`, and programs that leave something behind (K8)."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, line

from mcp_toolset.config import load_config
from mcp_toolset.extensions.secret_commands.references import look_up

__all__ = ["line"]

pytestmark = pytest.mark.needs("secret_commands")

SLIPS = [
    "${command: op read op://work/token}",
    "${command:'op' read}",
    '${command:"op read}',
    "${command:}",
    "${command:  }",
    "${command:op read ${HOME}}",
    "${command:op read x",
    "${ command:op read x}",
    "${COMMAND:/usr/bin/op read x}",
    "${cmd:op/read}",
    "${File:/run/secrets/x}",
    "${FILE:secrets/x}",
    "${files:~/x}",
]


# The text itself would be sent as the token.
@pytest.mark.parametrize("text", SLIPS)
def test_k8_a_slip_in_a_reference_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    headers = {"Authorization": f"Bearer {text}"}
    path.write_text(json.dumps({"mcpServers": {"up": {"url": "https://h.example/mcp", "headers": headers}}}))
    (server,) = load_config(path).servers
    assert server.fault, dict(server.headers)


def test_k8_check_finds_a_slip_in_a_reference(line: CommandLine) -> None:
    headers = {"Authorization": f"Bearer {SLIPS[0]}"}
    line.write("mcp.json", json.dumps({"mcpServers": {"up": {"url": "https://h/mcp", "headers": headers}}}))
    assert line.run("check", "mcp.json").returncode == 1


@pytest.mark.parametrize("name", [".vscode/mcp.json", ".cursor/mcp.json"])
def test_k8_a_file_of_an_editor_runs_nothing(line: CommandLine, name: str) -> None:
    mark = line.folder / "ran"
    (line.folder / name).parent.mkdir()
    entry = {"command": "no-such-program", "env": {"A": f"${{command:touch {mark}}}"}}
    line.write(name, json.dumps({"mcpServers": {"up": entry}, "servers": {"up": entry}}))
    line.run("list", name)
    assert not mark.exists()


# A program that starts its agent (gpg-agent, op) and ends has given its secret.
def test_k8_a_program_that_leaves_an_agent_behind_has_ended(tmp_path: Path) -> None:
    said = shlex.join(["sh", "-c", "sleep 20 & echo s3cr3t-0f-a-c0mmand"])
    assert look_up(said, tmp_path, os.environ, seconds=3) == "s3cr3t-0f-a-c0mmand"
