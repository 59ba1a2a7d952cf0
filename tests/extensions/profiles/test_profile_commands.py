"""`--profile`: for `serve` on standard input, for commands that look at a target, and for `install`."""

from __future__ import annotations

import json
import shlex
import sys
import zipfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from tests.cli.commandline import CommandLine, environment, line
from tests.faults.harness import until
from tests.support.configured import BOUND, PLAIN
from tests.support.piped import handshake
from tests.support.stats import all_counted

from mcp_toolset.extensions.statistics.store import StatisticsStore

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
        process.stdin.write(json.dumps(handshake(1)) + "\n")
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


def test_k4_preflight_knows_that_a_server_of_the_profile_is_down(line: CommandLine) -> None:
    profiles = {
        "by_hint": {"tools": ["readOnly:*"]},
        "by_name": {"tools": ["one/a"]},
        "other": {"tools": ["x"]},
    }
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit('dead')"]}
    line.write("mcp.json", json.dumps({"toolset": {"profiles": profiles}, "mcpServers": {"one": dead}}))
    for name, code in (("by_hint", 10), ("by_name", 10), ("other", 0)):
        done = line.run("preflight", "mcp.json", "--profile", name)
        assert done.returncode == code, (name, done.stdout)
        expected = line.run("preflight", "mcp.json", "--profile", name, "--expect", "one/a")
        assert expected.returncode == (10 if code else 12), (name, expected.stdout)


def test_k4_preflight_starts_no_server_that_the_profile_has_nothing_of(line: CommandLine) -> None:
    started = {"command": sys.executable, "args": ["-c", "open('started', 'w')"], "cwd": str(line.folder)}
    section = {"profiles": {"work": {"tools": ["one/*"]}}}
    line.write(
        "mcp.json", json.dumps({"toolset": section, "mcpServers": {"one": entry("a"), "two": started}})
    )
    done = line.run("preflight", "mcp.json", "--profile", "work")
    assert done.returncode == 0, done.stdout
    assert not (line.folder / "started").exists()


def test_k4_check_is_about_the_servers_of_the_profile(line: CommandLine) -> None:
    section = {"profiles": {"work": {"tools": ["one/a"]}, "hints": {"tools": ["readOnly:*"]}}}
    servers = {"one": entry("a"), "two": {"command": "x", "timeout": "never"}}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": servers}))
    for words, code, names in (
        ((), 1, ["one", "two"]),
        (("--profile", "work"), 0, ["one"]),
        (("--profile", "hints"), 1, ["one", "two"]),
    ):
        done = line.run("check", "mcp.json", *words, "--json")
        found = json.loads(done.stdout)
        assert (done.returncode, [one["name"] for one in found["servers"]]) == (code, names)
        assert bool(found["problems"]) == bool(code)
    unknown = line.run("check", "mcp.json", "--profile", "wrok")
    assert unknown.returncode == 1 and "did you mean 'work'?" in unknown.stderr
    alone = line.run("check", "--profile", "work", "--no-start")
    assert alone.returncode == 2 and "--profile is of a FILE" in alone.stderr


async def test_k4_stats_of_a_profile_and_of_a_file_with_all_of_its_profiles(
    hub: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(path := tmp_path / "stats.sqlite3"))
    for number, (name, *tools) in enumerate((("work", "first", "one_b"), ("home", "two_c"))):
        program, *arguments = hub.command("serve", "mcp.json", "--profile", name)
        env = environment(hub.folder)
        server = StdioServerParameters(command=program, args=arguments, cwd=str(hub.folder), env=env)
        with anyio.fail_after(BOUND):
            async with Client(server, mode="legacy", cache=None) as client:
                for tool in tools:
                    await client.call_tool(tool)
                await until(partial(all_counted, path, 1 + number))

    def calls(*words: str) -> int:
        total = json.loads(hub.run("stats", *words, "--json").stdout)["total"]
        return total["calls"] if total else 0

    assert calls("mcp.json", "--profile", "work") == calls("--profile", "work") == 2
    assert calls("mcp.json") == 3 and calls("mcp.json", "--profile", "wrok") == 0
    assert hub.run("stats", "mcp.json", "--profile", "work", "--forget").returncode == 0
    assert calls("mcp.json") == 1 and calls("mcp.json", "--profile", "work") == 0
    advised = hub.run("stats", "mcp.json", "--profile", "work", "--advice")
    assert advised.returncode == 2 and "--profile has no effect on --advice" in advised.stderr


def test_k4_a_server_that_is_used_through_a_profile_is_in_use(
    hub: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(path := tmp_path / "stats.sqlite3"))
    file = str(hub.folder / "mcp.json")
    StatisticsStore(path).add(file, {("", "c", "sessions"): 20, ("two", "c", "result"): 1})
    StatisticsStore(path).add(f"{file}#work", {("", "c", "sessions"): 20, ("one", "c", "result"): 1})
    found = json.loads(hub.run("stats", "mcp.json", "--advice", "--json").stdout)
    assert [one["server"] for one in found["advice"]] == [] and found["served"][0]["sessions"] == 40
    assert [*json.loads(hub.run("stats", "--advice", "--json").stdout)["served"]] == found["served"]


def test_k4_logs_of_a_profile_are_its_lines(hub: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}-1.0001.jsonl"
    lines = [{"message": view or "none", **({"view": view} if view else {})} for view in ("", "work", "home")]
    begun = {
        "time": f"{now:%Y-%m-%dT%H:%M:%S}.000Z",
        "level": "info",
        "pid": 1,
        "served": str(hub.folder / "mcp.json"),
    }
    (folder / name).write_text("".join(json.dumps({**begun, **one}) + "\n" for one in lines))
    for words, told in (((), ["none", "work", "home"]), (("--profile", "work"), ["work"])):
        done = hub.run("logs", "mcp.json", *words, "--json", env={"MCP_TOOLSET_LOG": str(folder)})
        assert [json.loads(one)["message"] for one in done.stdout.splitlines()] == told, done.stderr


@pytest.mark.needs("audit")
def test_k4_lines_of_the_audit_log_are_chosen_by_profile(line: CommandLine) -> None:
    line.write("audit.jsonl", '{"event":"call","tool":"a"}\n{"event":"call","tool":"b","view":"work"}\n')
    done = line.run("audit", "show", "audit.jsonl", "--profile", "work", "--json")
    assert [json.loads(one)["tool"] for one in done.stdout.splitlines()] == ["b"]


def test_k4_a_skill_uses_the_profile_that_it_is_about(hub: CommandLine) -> None:
    text = hub.run("skill", "mcp.json", "--profile", "work").stdout
    commands = [one for one in text.splitlines() if one.startswith("mcp-toolset ")]
    assert commands and all("/mcp.json --profile work " in one for one in commands)
    assert text.splitlines()[1].endswith("-work")
    program, *words = shlex.split(commands[0])
    assert json.loads(hub.run(*words).stdout)["hits"]


def test_k4_a_bundle_serves_the_profile(line: CommandLine) -> None:
    line.write("app.py", PROGRAM)
    done = line.run("pack", "app.py", "--profile", "reading", "--json")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(line.folder / "app.mcpb") as bundle:
        assert '"--profile", "reading"' in bundle.read("main.py").decode()
        assert "drop" not in bundle.read("manifest.json").decode()
    assert line.run("pack", "app.py", "--profile", "wrok").returncode == 1
    config = {"toolset": {"profiles": {"work": {}}}, "mcpServers": {"one": {"command": "uvx", "args": ["x"]}}}
    line.write("mcp.json", json.dumps(config))
    assert line.run("pack", "mcp.json", "--profile", "work", "-o", "two.mcpb").returncode == 0
    unknown = line.run("pack", "mcp.json", "--profile", "wrok")
    assert unknown.returncode == 1 and "there is no profile 'wrok'" in unknown.stderr


@pytest.mark.parametrize(
    "words", [("list", "--clients"), ("search", "mcp.json", "--learned"), ("search", "mcp.json", "--forget")]
)
def test_k4_a_profile_without_effect_is_a_mistake(hub: CommandLine, words: tuple[str, ...]) -> None:
    done = hub.run(*words, "--profile", "work")
    assert done.returncode == 2 and "--profile" in done.stderr, done.stdout


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


@pytest.mark.needs("secret_commands")
def test_k4_install_of_a_profile_runs_no_program_for_secrets(hub: CommandLine) -> None:
    mark = hub.folder / "ran"
    config = json.loads((hub.folder / "mcp.json").read_text())
    config["mcpServers"]["secret"] = {"command": "x", "env": {"K": f"${{command:touch {mark}}}"}}
    hub.write("mcp.json", json.dumps(config))
    done = hub.run("install", "cursor", "mcp.json", "--profile", "work", "--dry-run")
    assert done.returncode == 0 and not mark.exists(), done.stderr
