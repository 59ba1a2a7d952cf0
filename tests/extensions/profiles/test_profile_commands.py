"""`--profile`: for `serve` on standard input, for commands that look at a target, and for `install`."""

from __future__ import annotations

import json
import sys

import pytest
from mcp import Client, StdioServerParameters
from tests.cli.commandline import CommandLine, line
from tests.support.configured import PLAIN

__all__ = ["line"]

pytestmark = pytest.mark.anyio

PROGRAM = """
from mcp_toolset import Toolset, ToolsetServer, tool

@tool(read_only=True)
def look() -> str:
    \"\"\"Look.\"\"\"
    return "seen"

@tool
def drop() -> str:
    \"\"\"Drop.\"\"\"
    return "dropped"

server = ToolsetServer(Toolset(look, drop), profiles={"reading": {"tools": ["readOnly:*"]}})
"""


def entry(*tools: str) -> dict[str, object]:
    return {"command": sys.executable, "args": [PLAIN, json.dumps({"tools": tools})]}


@pytest.fixture
def hub(line: CommandLine) -> CommandLine:
    profiles = {"work": {"tools": ["one/*"], "names": {"one_a": "first"}}, "home": {"tools": ["two/*"]}}
    section = {"profiles": profiles}
    servers = {"one": entry("a", "b"), "two": entry("c")}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": servers}))
    return line


def test_k4_commands_see_the_profile_alone(hub: CommandLine) -> None:
    listed = json.loads(hub.run("list", "mcp.json", "--profile", "work", "--json").stdout)
    assert [tool["name"] for tool in listed["tools"]] == ["first", "one_b"]
    assert [*listed["servers"]] == ["one"]
    assert "two" not in json.dumps(listed)
    found = json.loads(hub.run("search", "mcp.json", "c", "--profile", "home", "--json").stdout)
    assert [hit["name"] for hit in found["hits"]] == ["two_c"]
    done = hub.run("call", "mcp.json", "first", "--profile", "work")
    assert done.stdout.startswith("a of"), done.stderr
    for other in ("one_a", "two_c"):
        missing = hub.run("call", "mcp.json", other, "--profile", "work")
        assert missing.returncode == 1 and f"{other}: no such tool" in missing.stderr
    unknown = hub.run("list", "mcp.json", "--profile", "wrok")
    assert unknown.returncode == 1
    assert "there is no profile 'wrok' in toolset.profiles; did you mean 'work'?" in unknown.stderr


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_k4_stdio_serves_the_profile_alone(hub: CommandLine, mode: str) -> None:
    program, *arguments = hub.command("serve", "mcp.json", "--profile", "work")
    server = StdioServerParameters(command=program, args=arguments, cwd=str(hub.folder), env=None)
    async with Client(server, mode=mode, cache=None) as client:  # pyright: ignore[reportArgumentType]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["first", "one_b"]
        assert not (await client.call_tool("first")).is_error


def test_k4_one_profile_is_for_stdio(hub: CommandLine) -> None:
    done = hub.run("serve", "mcp.json", "--profile", "work", "--transport", "http", "--port", "0")
    assert done.returncode == 1 and "over HTTP each has an address of its own" in done.stderr
    done = hub.run("serve", "mcp.json", "--profile", "wrok")
    assert done.returncode == 1 and "there is no profile 'wrok'" in done.stderr


def test_k4_install_writes_the_profile_into_the_entry(hub: CommandLine) -> None:
    done = hub.run("install", "cursor", "mcp.json", "--profile", "work", "--dry-run")
    written = done.stdout.replace("+", "").split()
    assert '"--profile",' in written and written[written.index('"--profile",') + 1] == '"work",', done.stderr


def test_k4_stdio_ends_when_its_profile_is_removed(hub: CommandLine) -> None:
    process = hub.fork("serve", "mcp.json", "--profile", "work")
    try:
        assert process.stdin is not None and process.stdout is not None
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        assert '"id":1' in process.stdout.readline()
        file = json.loads((hub.folder / "mcp.json").read_text())
        del file["toolset"]["profiles"]["work"]
        hub.write("mcp.json", json.dumps(file))
        assert process.wait(60) is not None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["list", "serve", "preflight", "explain", "pin"])
def test_k4_an_empty_name_of_a_profile_is_refused_by_commands(hub: CommandLine, command: str) -> None:
    done = hub.run(command, "mcp.json", "--profile", "")
    assert done.returncode != 0 and "two_c" not in done.stdout, done.stdout


def test_k4_a_profile_of_a_program_is_chosen_by_the_option(line: CommandLine) -> None:
    line.write("app.py", PROGRAM)
    done = line.run("list", "app.py", "--profile", "reading", "--json")
    assert done.returncode == 0, done.stderr
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["look"]


def test_k4_preflight_sees_the_profile_alone(hub: CommandLine) -> None:
    done = hub.run("preflight", "mcp.json", "--profile", "work", "--json")
    assert "two" not in done.stdout


def test_k4_preflight_of_an_unknown_profile_fails(hub: CommandLine) -> None:
    done = hub.run("preflight", "mcp.json", "--profile", "wrok")
    assert done.returncode != 0, done.stdout


def test_k4_preflight_knows_tools_by_the_names_of_the_profile(hub: CommandLine) -> None:
    for name, code in (("first", 0), ("one_a", 12), ("two", 12), ("two_c", 12)):
        done = hub.run("preflight", "mcp.json", "--profile", "work", "--expect", name)
        assert done.returncode == code, (name, done.stdout)


def test_k4_install_of_an_unknown_profile_fails(hub: CommandLine) -> None:
    done = hub.run("install", "cursor", "mcp.json", "--profile", "wrok", "--dry-run")
    assert done.returncode != 0, done.stdout


def test_k4_adopting_with_a_profile_is_refused(line: CommandLine) -> None:
    (line.folder / ".cursor").mkdir()
    line.write(".cursor/mcp.json", json.dumps({"mcpServers": {"one": entry("a")}}))
    done = line.run("install", "cursor", "--adopt", "--profile", "work", "--dry-run")
    assert done.returncode == 2 and "--profile has no effect on --adopt" in done.stderr, done.stdout


def test_k4_a_profile_that_needs_a_login_needs_one_in_the_file(line: CommandLine) -> None:
    section = {"profiles": {"work": {"auth": True}}}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": {"one": entry("a")}}))
    done = line.run("check", "mcp.json")
    assert done.returncode == 1 and "nothing says who calls" in done.stdout + done.stderr, done.stdout
