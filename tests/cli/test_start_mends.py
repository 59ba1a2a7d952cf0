"""A server that cannot be started is told of with the mend of its own cause."""

import json
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, line

__all__ = ["line"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            f"{sys.executable} -m some_server --x",
            f'its command has arguments: {sys.executable} -m some_server --x; write "command": '
            f'"{sys.executable}", "args": ["-m", "some_server", "--x", …]',
        ),
        ("./locked.sh", "its command may not be run: ./locked.sh; run chmod +x on it"),
        (
            "~/bin/server",
            "command not found: ~/bin/server; ~ stands for nothing here: write ${HOME}/bin/server",
        ),
        ("./folder", "its command is a folder: ./folder; give the path of a program"),
        ('"/usr/bin/env"', "leave out the quotation marks in it"),
        ("no-such-program", "command not found: no-such-program; install it or give its full path"),
    ],
)
def test_u97_a_command_that_cannot_be_run_gets_its_own_mend(line: CommandLine, command: str, told: str):
    (line.folder / "locked.sh").write_text("#!/bin/sh\ncat\n")
    (line.folder / "folder").mkdir()
    line.write("hub.json", json.dumps({"mcpServers": {"wrong": {"command": command}}}))
    checked, listed = line.run("check", "hub.json"), line.run("list", "hub.json")
    assert told in " ".join(checked.stdout.split()), checked
    assert told in listed.stderr, listed


def test_u97_a_server_that_prints_to_standard_output_is_told_of_at_once(line: CommandLine, tmp_path: Path):
    line.write("prints.py", "print('Welcome!', flush=True)\nimport time\ntime.sleep(100)\n")
    entry = {"command": sys.executable, "args": ["prints.py"], "start_timeout": 2}
    line.write("hub.json", json.dumps({"mcpServers": {"prints": entry}}))
    told = line.run("list", "hub.json").stderr.splitlines()
    assert "server 'prints' printed 'Welcome!' to standard output" in told[0]
    assert "no answer within 2 s (it printed 'Welcome!' to standard output; have the program write" in told[1]


def test_u97_a_server_that_prints_a_line_and_then_serves_is_served(line: CommandLine):
    line.write(
        "late.py",
        "from mcp_toolset import serve, tool\nprint('Welcome!', flush=True)\n"
        "@tool\ndef add(a: int, b: int) -> int:\n    return a + b\nserve(add)\n",
    )
    entry = {"command": sys.executable, "args": ["late.py"]}
    line.write("hub.json", json.dumps({"mcpServers": {"late": entry}}))
    listed = line.run("list", "hub.json")
    assert listed.returncode == 0 and "add" in listed.stdout
