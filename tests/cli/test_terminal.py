"""Serving in a terminal: a person sees what is served and ends it with one Ctrl-C."""

import json
import os
import re
import select
import sys
from typing import Any

import pytest
from tests.cli.commandline import PATIENCE, CommandLine, command, line
from tests.cli.pseudo import CTRL_C, CTRL_D, Terminal, python, terminal

__all__ = ["line"]

PATIENT = """
import sys
from mcp_toolset.transports import stdio_client as child; from mcp_toolset.transports.http import app as http
# Only someone who does not wait for these ends while the test looks on.
child.GRACE = http._DRAIN = 600
"""

BLOCKED = """
import os, threading
from mcp_toolset import serve, tool

@tool
def block() -> str:
    \"\"\"Never come back.\"\"\"
    print("it blocks")
    threading.Event().wait()
    return ""

@tool
async def wait() -> str:
    \"\"\"Never come back.\"\"\"
    import anyio
    print("it waits")
    await anyio.sleep_forever()
    return ""

"""

STUBBORN = """
import os, signal, sys, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told = open(sys.argv[1], "w")
told.write("started\\n")
told.flush()
threading.Event().wait()
"""


def initialized(name: str) -> str:
    """The words of a client to call a tool."""
    about = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": {}}},
    ]
    return "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


def ended(screen: Terminal) -> None:
    assert screen.end() == 0, screen.screen
    assert "Traceback" not in screen.screen and "Error" not in screen.screen
    assert screen.intact()


def test_u3_serve_says_what_it_serves_and_ends_at_one_ctrl_c(line: CommandLine):
    with terminal(command("serve", "calc.py"), line.folder) as screen:
        screen.shows("serving add (1 tool) on stdio; waiting for a client …")
        screen.type('what is this?\n{"half": \n')
        screen.type(json.dumps({"jsonrpc": "2.0", "id": "still-there", "method": "ping"}) + "\n")
        screen.shows('"id":"still-there","')
        screen.type(CTRL_C)
        ended(screen)


def test_u3_the_shortest_program_ends_at_one_ctrl_c_though_a_call_is_blocked(line: CommandLine):
    line.write("blocked.py", BLOCKED + "serve(block)\n")
    with terminal([sys.executable, "blocked.py"], line.folder) as screen:
        screen.shows("serving block (1 tool) on stdio; waiting for a client …")
        screen.type(initialized("block"))
        screen.shows("it blocks")
        screen.type(CTRL_C)
        ended(screen)


def test_u3_the_end_of_input_ends_it_and_a_file_takes_the_answers(line: CommandLine):
    shell = " ".join([*command("serve", "kit.py"), "> answers"])
    with terminal(["sh", "-c", shell], line.folder) as screen:
        screen.shows("serving kit (5 tools) on stdio; waiting for a client …")
        screen.type(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping"}) + "\n")
        screen.type(CTRL_D)
        ended(screen)
    assert json.loads((line.folder / "answers").read_text())["id"] == 7


def test_u3_ctrl_c_ends_a_mount_that_is_still_starting(line: CommandLine):
    pipe = line.folder / "told"
    os.mkfifo(pipe)
    line.write("stubborn.py", STUBBORN)
    mounts = {"slow": {"command": sys.executable, "args": ["stubborn.py", str(pipe)]}}
    line.write("mcp.json", json.dumps({"mcpServers": mounts}))
    program = PATIENT + "from mcp_toolset.cli.main import main\nsys.exit(main(['serve', 'mcp.json']))"
    told = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with terminal(python(program), line.folder) as screen:
        assert heard(told) == b"started\n"
        screen.shows("serving", "(0 tools; slow starting) on stdio; waiting for a client")
        screen.type(CTRL_C)
        ended(screen)
    # Nobody holds the other end any more: the child is gone.
    assert heard(told) == b""
    os.close(told)


def heard(pipe: int) -> bytes:
    assert select.select([pipe], [], [], PATIENCE)[0]
    return os.read(pipe, 100)


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_u3_a_listening_server_says_its_url_and_ends_at_one_ctrl_c(line: CommandLine, transport: str):
    serve = f"serve(wait, transport={transport!r}, port=0)\n"
    file = line.write("waiting.py", PATIENT + BLOCKED + serve)
    with terminal([sys.executable, str(file)], line.folder) as screen:
        address = re.search(r"http://\S+", screen.shows("serving wait (1 tool) at", "(Ctrl-C ends it)"))
        assert address is not None and address[0].endswith("/mcp" if transport == "http" else "/sse")
        caller = line.start("call", address[0], "wait")
        screen.shows("it waits")
        screen.type(CTRL_C)
        ended(screen)
    _, said = caller.communicate(timeout=PATIENCE)
    assert (caller.returncode, said.count("\n")) == (1, 1), said


def test_u3_a_client_that_starts_a_server_finds_stderr_empty(line: CommandLine):
    done = line.run("serve", "kit.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
