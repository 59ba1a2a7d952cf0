"""Attacks on `${command:…}`: slips that are silent, and programs that outlive their deadline (K8)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, line

from mcp_toolset.config import load_config
from mcp_toolset.errors import SecretError
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
]


# Severity: medium. The text itself is sent as the token, to the server and over the net, and `check` says
# `ok`.
@pytest.mark.parametrize("text", SLIPS)
def test_k8_a_slip_in_a_reference_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    headers = {"Authorization": f"Bearer {text}"}
    path.write_text(json.dumps({"mcpServers": {"up": {"url": "https://h.example/mcp", "headers": headers}}}))
    (server,) = load_config(path).servers
    assert server.fault, dict(server.headers)


# Severity: medium. As above: `check FILE` is the command that is to find it.
def test_k8_check_finds_a_slip_in_a_reference(line: CommandLine) -> None:
    headers = {"Authorization": f"Bearer {SLIPS[0]}"}
    line.write("mcp.json", json.dumps({"mcpServers": {"up": {"url": "https://h/mcp", "headers": headers}}}))
    assert line.run("check", "mcp.json").returncode == 1


# Severity: medium. "The bridge ends the program and the programs that it has started": not one with its own
# session.
def test_k8_the_deadline_ends_a_child_with_a_session_of_its_own(tmp_path: Path) -> None:
    child = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(120)"
    code = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-IS', '-c', {child!r}], "
        "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()"
    )
    with pytest.raises(SecretError, match="did not end"):
        look_up(shlex.join([sys.executable, "-IS", "-c", code]), tmp_path, os.environ, seconds=3)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert not _runs(pid), "it still runs"
    finally:
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Severity: medium. A program that starts its agent (gpg-agent, op) and ends has given its secret: the
# bridge waits 30 seconds, ends the agent, and says that the program did not end.
def test_k8_a_program_that_leaves_an_agent_behind_has_ended(tmp_path: Path) -> None:
    said = shlex.join(["sh", "-c", "sleep 20 & echo s3cr3t-0f-a-c0mmand"])
    assert look_up(said, tmp_path, os.environ, seconds=3) == "s3cr3t-0f-a-c0mmand"


# Severity: medium. "Entries in files of other clients run none: there `${command:…}` is a command of the
# editor."
@pytest.mark.parametrize("name", [".vscode/mcp.json", ".cursor/mcp.json"])
def test_k8_a_file_of_an_editor_runs_nothing(line: CommandLine, name: str) -> None:
    mark = line.folder / "ran"
    (line.folder / name).parent.mkdir()
    entry = {"command": "no-such-program", "env": {"A": f"${{command:touch {mark}}}"}}
    line.write(name, json.dumps({"mcpServers": {"up": entry}, "servers": {"up": entry}}))
    line.run("list", name)
    assert not mark.exists()
