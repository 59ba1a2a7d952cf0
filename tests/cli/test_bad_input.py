"""Bad input is one line on stderr: place, cause and mend; never a traceback, nothing on stdout."""

import json
import socket
import sys
from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest
from tests.cli.commandline import CommandLine, line

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
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("command", ["serve", "list"])
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere.json", ("nowhere.json", "no such file", "check the path")),
        ("nowhere.py", ("nowhere.py", "no such file", "check the path")),
        ("nowhere", ("'nowhere'", "names nothing", "a command after --")),
        ("nowhere:tools", ("nowhere", "no such module", "check the name")),
        ("calc.py:subtrct", ("calc.py:subtrct", "no 'subtrct'", "did you mean subtract?")),
        (".", (".", "a folder", "name a file in it")),
        ("ftp://host/mcp", ("ftp://host/…", "ftp", "https://host/path")),
        ("http://", ("http://", "not a web address", "https://host/path")),
    ],
)
def test_unknown_target(line: CommandLine, command: str, target: str, says: tuple[str, ...]):
    line.write(
        "calc.py", "from mcp_toolset import tool\n@tool\ndef subtract(a: int) -> int:\n    return -a\n"
    )
    refused(line, command, target, code=1, says=says)


@pytest.mark.parametrize("command", ["serve", "list"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mcpServers": {\n  "a": }}', ("bad.json", "line 2", "not valid JSON", "correct the file")),
        ("{}", ("bad.json", "names no servers", "mcpServers")),
    ],
)
def test_unusable_configuration(line: CommandLine, command: str, text: str, says: tuple[str, ...]):
    line.write("bad.json", text)
    refused(line, command, "bad.json", code=1, says=says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            config(a={"url": "https://x/mcp", "type": "pigeon"}),
            ("mcpServers.a.type", "no transport", "stdio, http or sse"),
        ),
        (
            config(a={"command": "x", "env": {"K": "${NOT_SET_1}"}}),
            ("mcpServers.a.env.K", "NOT_SET_1 is not set", "set NOT_SET_1"),
        ),
        (config(a={"command": 5.5, "args": "x"}), ("mcpServers.a.args", "list", "a list of strings")),
        (config(a={}), ("mcpServers.a", "neither", "add one")),
    ],
)
def test_u13_a_configuration_without_a_usable_server(line: CommandLine, text: str, says: tuple[str, ...]):
    line.write("bad.json", text)
    refused(line, "list", "bad.json", code=1, says=says)


def test_u13_serve_starts_with_a_bad_entry_and_tells_it(line: CommandLine):
    line.write("bad.json", config(a={"comand": "x"}, b={"command": "x", "env": {"K": "${NOT_SET_1}"}}))
    done = line.run("serve", "bad.json")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "bad.json: mcpServers.a.comand: unknown key; did you mean `command`?" in done.stderr
    assert "set NOT_SET_1" in done.stderr


def test_command_not_found(line: CommandLine):
    says = ("no-such-program", "command not found", "install it or give its full path")
    refused(line, "list", "--", "no-such-program", "-x", code=1, says=says)


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


def test_command_not_found_in_a_configuration(line: CommandLine):
    line.write("bad.json", config(a={"command": "no-such-program"}))
    refused(line, "list", "bad.json", code=1, says=("no-such-program", "command not found", "install it"))


def test_refused_url(line: CommandLine):
    refused(line, "list", REFUSED, code=1, says=(SHOWN, "connection", "check that it runs"))


def test_command_that_is_no_server(line: CommandLine, monkeypatch: pytest.MonkeyPatch):
    # The folder of an activated environment is no secret, and stands in the command.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    refused(
        line, "list", "--", sys.executable, "-c", "pass", code=1, says=(sys.executable, "check that it runs")
    )


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


@pytest.mark.parametrize("command", ["serve", "list"])
def test_tool_without_a_type_annotation(line: CommandLine, command: str):
    line.write("bare.py", "from mcp_toolset import tool\n\n@tool\ndef add(a):\n    return a\n")
    refused(
        line, command, "bare.py", code=1, says=("bare.py:3", "'a' has no type annotation", "write a: str")
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def broken(:\n", ("bad.py", "line 1", "SyntaxError", "correct the file")),
        ("x = 1\ny = x / 0\n", ("bad.py", "line 2", "ZeroDivisionError", "correct it")),
        ("import not_there_1\n", ("bad.py", "line 1", "not_there_1", "install not_there_1")),
        ("raise SystemExit(3)\n", ("bad.py", "exit code 3", "__main__")),
        ("x = 1\n", ("bad.py", "has no tools", "@tool")),
        ("from mcp_toolset import serve\nserve(len)\n", ("len",)),
    ],
)
def test_python_file_that_cannot_be_used(line: CommandLine, text: str, says: tuple[str, ...]):
    line.write("bad.py", text)
    refused(line, "list", "bad.py", code=1, says=says)


def test_attribute_that_cannot_be_served(line: CommandLine):
    line.write("bad.py", "tools = 5\n")
    refused(line, "list", "bad.py:tools", code=1, says=("bad.py:tools", "int", "name a tool"))


def test_two_serve_calls_in_one_file(line: CommandLine):
    line.write("two.py", "from mcp_toolset import serve\ndef a() -> None: ...\nserve(a)\nserve(a)\n")
    refused(line, "list", "two.py", code=1, says=("two.py", "2 times", "two.py:attribute"))


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_port_in_use(line: CommandLine, taken_port: int, transport: str):
    arguments = ("serve", "kit.py", "--transport", transport, "--port", str(taken_port))
    refused(line, *arguments, code=1, says=(str(taken_port), "127.0.0.1", "in use", "--port"))


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("kit.py", "ech", "text=x"), 1, ("ech", "no such tool in kit.py", "did you mean echo?")),
        (("kit.py", "nothing-like-it"), 1, ("nothing-like-it", "no such tool", "mcp-toolset list kit.py")),
        (("kit.py", "echo"), 1, ("echo", '"text" is a required property', "echo(text: string)")),
        (
            ("kit.py", "sort_names", '{"names": 5}'),
            1,
            ("sort_names", "names", '"array"', "sort_names(names: string[]"),
        ),
        (("kit.py", "echo", "text=x", "tone=high"), 1, ("echo", "tone", "it takes echo(text: string)")),
        (("kit.py", "echo", "hello"), 2, ("'hello'", "key=value")),
        (("kit.py", "echo", "{text}"), 2, ("line 1 column 2", "not valid JSON", "key=value")),
        (("kit.py", "echo", "[1]"), 2, ("a JSON array, not an object",)),
        (("kit.py", "echo", "text=a", "text=b"), 2, ("text", "2 times", "give it once")),
        (("kit.py", "echo", "-"), 2, ("stdin", "not valid JSON")),
        (("kit.py",), 2, ("TOOL is missing", "kit.py")),
    ],
)
def test_call_that_does_not_fit(line: CommandLine, words: tuple[str, ...], code: int, says: tuple[str, ...]):
    refused(line, "call", *words, code=code, says=says, stdin="{")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lost",), ("lost",)),
        (("list",), ("TARGET is missing", "a command after --")),
        (("list", "--"), ("nothing follows --", "write the command")),
        (("list", "kit.py", "more"), ("'more'", "one word too many")),
        (("list", "kit.py", "--jason"), ("--jason", "mcp-toolset list --help")),
        (
            ("list", "kit.py", "--", "x"),
            ("'kit.py'", "one word too many", "the command after -- is the target"),
        ),
        (("list", "kit.py", "--timeout", "0"), ("--timeout", "0")),
        (("search", "kit.py"), ("QUERY is missing", "kit.py")),
        (("serve", "kit.py", "--transport", "pigeon"), ("--transport", "'pigeon'", "'stdio', 'http', 'sse'")),
        (("serve", "kit.py", "--port", "70000"), ("--port", "70000", "65535")),
        (("install", "notepad", "kit.py"), ("'notepad'", "claude-desktop")),
        (("install", "cursor", "kit.py", "--env", "KEY"), ("--env 'KEY'", "KEY=VALUE")),
    ],
)
def test_mistake_in_the_command_line(line: CommandLine, arguments: tuple[str, ...], says: tuple[str, ...]):
    refused(line, *arguments, code=2, says=(*says, "--help"))


def test_unknown_server_in_a_search(line: CommandLine):
    refused(
        line, "search", "kit.py", "sort", "--server", "git", code=1, says=("--server git", "none is mounted")
    )


def test_nothing_is_installed_for_a_target_that_is_not_there(line: CommandLine):
    refused(line, "install", "cursor", "nowhere.py", code=1, says=("nowhere.py", "no such file"))
    assert not (line.folder / ".cursor").exists()


def test_debugging_shows_the_traceback(line: CommandLine):
    done = line.process("list", "nowhere.json", env={"MCP_TOOLSET_DEBUG": "1"})
    assert "Traceback" in done.stderr
    assert done.returncode == 1
