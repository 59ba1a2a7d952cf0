"""Bad input is one line on stderr where no person reads it: place, cause and mend; nothing on stdout.

What each mistake is told is in `mistakes.py`; here is one of each kind, as a program gets it.
"""

import json
import socket
from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest
from tests.cli.commandline import CommandLine, line
from tests.cli.mistakes import files
from tests.support.rows import rows

__all__ = ["line"]

REFUSED = "http://127.0.0.1:9/mcp"
SHOWN = "http://127.0.0.1:9/…"


def config(**servers: object) -> str:
    return json.dumps({"mcpServers": servers})


def refused(line: CommandLine, *arguments: str, code: int, says: tuple[str, ...], stdin: str = "") -> None:
    is_one_refused_line(line.here(*arguments, stdin=stdin), code, says)


def is_one_refused_line(done: CompletedProcess[str], code: int, says: tuple[str, ...]) -> None:
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("mcp-toolset")
    assert [part for part in says if part not in lines[0]] == [], lines[0]
    assert done.returncode == code


@pytest.fixture
def place(line: CommandLine) -> CommandLine:
    """A folder with the files of `mistakes.py`, and some more."""
    files(line.folder)
    line.write("exits.py", "raise SystemExit(3)\n")
    line.write("nothing.py", "from mcp_toolset import serve\nserve(len)\n")
    line.write("wrong.json", config(a={"command": 5.5, "args": "x"}))
    return line


REFUSALS = [
    # the line itself
    ("lost", 2, ("lost", "--help")),
    ("list", 2, ("TARGET is missing", "a command after --", "--help")),
    ("serve kit.py --port 70000", 2, ("--port", "70000", "65535", "--help")),
    # files and addresses, for the command that serves them too
    ("list nowhere.json", 1, ("nowhere.json", "no such file", "check the path")),
    ("serve nowhere.json", 1, ("nowhere.json", "no such file", "check the path")),
    ("serve nowhere", 1, ("'nowhere'", "names nothing", "a command after --")),
    ("serve kit.py:ecko", 1, ("kit.py:ecko", "no 'ecko'", "did you mean echo?")),
    ("serve ftp://host/mcp", 1, ("ftp://host/…", "ftp", "https://host/path")),
    ("serve broken.json", 1, ("broken.json", "line 3", "not valid JSON", "correct the file")),
    ("serve nothing.json", 1, ("nothing.json", "names no servers", "mcpServers")),
    ("list wrong.json", 1, ("mcpServers.a.args", "list", "a list of strings")),
    ("list untyped.py", 1, ("untyped.py:3", "'a' has no type annotation", "write a: str")),
    ("list exits.py", 1, ("exits.py", "exit code 3", "__main__")),
    ("list nothing.py", 1, ("len",)),
    # servers
    (
        "list -- no-such-program -x",
        1,
        ("no-such-program", "command not found", "install it or give its full"),
    ),
    (f"list {REFUSED}", 1, (SHOWN, "connection", "check that it runs")),
    # tools
    ("call kit.py nothing-like-it", 1, ("nothing-like-it", "no such tool", "mcp-toolset list kit.py")),
    ("call kit.py echo -", 2, ("stdin", "not valid JSON")),
]


@rows("words, code, says", REFUSALS)
def test_a_mistake_is_one_line(place: CommandLine, words: str, code: int, says: tuple[str, ...]):
    refused(place, *words.split(), code=code, says=says, stdin="{")


def test_u13_serve_starts_with_a_bad_entry_and_tells_it(line: CommandLine):
    line.write("bad.json", config(a={"comand": "x"}, b={"command": "x", "env": {"K": "${NOT_SET_1}"}}))
    done = line.run("serve", "bad.json")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "bad.json: mcpServers.a.comand: unknown key; did you mean `command`?" in done.stderr
    assert "set NOT_SET_1" in done.stderr


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (("--", "no-such-program", "-x"), ("no-such-program", "command not found", "install it")),
        ((REFUSED,), (SHOWN, "connection", "check that it runs")),
    ],
)
def test_serve_of_one_server_ends_with_the_reason_that_it_is_down(
    line: CommandLine, target: tuple[str, ...], says: tuple[str, ...]
):
    is_one_refused_line(line.serve(*target), 1, says)


@pytest.mark.parametrize("command", ["serve", "list"])
def test_l28_two_tools_of_one_name(line: CommandLine, command: str):
    twice = """
from mcp_toolset import tool

@tool
def add(a: int) -> int:
    return a

@tool(name="add")
def plus(a: int) -> int:
    return a
"""
    line.write("twice.py", twice)
    says = ("two tools are named 'add'", "twice.py:4", "twice.py:8", "rename one")
    refused(line, command, "twice.py", code=1, says=says)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_port_in_use(line: CommandLine, taken_port: int, transport: str):
    arguments = ("serve", "kit.py", "--transport", transport, "--port", str(taken_port))
    refused(line, *arguments, code=1, says=(str(taken_port), "127.0.0.1", "in use", "--port"))


def test_nothing_is_installed_for_a_target_that_is_not_there(line: CommandLine):
    refused(line, "install", "cursor", "nowhere.py", code=1, says=("nowhere.py", "no such file"))
    assert not (line.folder / ".cursor").exists()


def test_debugging_shows_the_traceback(line: CommandLine):
    done = line.process("list", "nowhere.json", env={"MCP_TOOLSET_DEBUG": "1"})
    assert "Traceback" in done.stderr
    assert done.returncode == 1
