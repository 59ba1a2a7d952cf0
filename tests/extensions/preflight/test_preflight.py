"""`mcp-toolset preflight`: the exit code says whether what an agent needs is there, and why not (K7)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, answer, line
from tests.faults.harness import hostile, tool

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.pins.canonical import canonical
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.config import load_config
from mcp_toolset.extensions.preflight.checks import CODES, needed_servers

__all__ = ["line"]

ROOT = Path(__file__).parents[3]

READ, DROP = tool("read"), tool("drop", annotations={"destructiveHint": True})
MORE = {"type": "object", "properties": {"force": {"type": "boolean"}}}


DEAD = {"command": sys.executable, "args": ["-c", "raise SystemExit('error: no license')"]}


def entry(*tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    command = hostile(tools=list(tools), **more)
    return {"command": command[0], "args": command[1:]}


def configure(line: CommandLine, servers: dict[str, Any], **section: Any) -> Path:
    text = json.dumps({"mcpServers": servers, "toolset": section}, indent=1)
    return line.write("mcp.json", text)


@contextmanager
def locked() -> Iterator[str]:
    """A server that wants a login."""

    class Locked(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Locked)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def states(found: dict[str, Any]) -> dict[str, str]:
    return {one["needed"]: one["state"] for one in found["checks"]}


def test_k7_all_that_is_needed_is_there(line: CommandLine) -> None:
    configure(line, {"git": entry(READ, DROP)})
    done = line.run("preflight", "mcp.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "all that is needed is there; exit code 0"
    words = ("--expect", "git", "--expect", "git/read", "--expect", "git_drop", "--expect", "git/*")
    found = answer(line, "preflight", "mcp.json", *words)
    assert found["ready"] and states(found) == dict.fromkeys(("git", "git/read", "git_drop", "git/*"), "ok")
    assert found["checks"][3]["tools"] == ["git_read", "git_drop"]


def test_k7_a_program_and_a_command_are_checked_too(line: CommandLine) -> None:
    assert line.run("preflight", "kit.py", "--expect", "echo").returncode == 0
    assert line.run("preflight", "kit.py", "--expect", "ecko").returncode == 12
    assert line.run("preflight", "--expect", "read", "--", *hostile(tools=[READ])).returncode == 0


def test_k7_each_class_has_an_exit_code_and_the_highest_holds(line: CommandLine) -> None:
    silent = {**entry(READ, silent=["tools/list"])}
    with locked() as url:
        servers = {
            "git": {**entry(READ, DROP), "permissions": {"deny": ["drop"]}},
            "dead": DEAD,
            "slow": silent,
            "mail": {"url": url, "auth": "oauth"},
            "post": {"url": url},
            "worn": {"url": url, "headers": {"Authorization": "Bearer an-old-token"}},
            "odd": {"command": "x", "timeout": "never"},
            "away": {"command": "no-such-program"},
        }
        configure(line, servers)
        codes = {
            "git/read": 0,
            "dead": 10,
            "slow": 10,
            "mail": 11,
            "post": 11,
            "worn": 11,
            "git/write": 12,
            "git/drop": 14,
            "odd": 15,
            "away": 15,
        }
        for name in ("dead", "mail", "git/write", "git/drop", "away"):
            done = line.run("preflight", "mcp.json", "--expect", name, "--timeout", "2")
            assert done.returncode == codes[name], (name, done.stdout, done.stderr)
        every = [word for name in codes for word in ("--expect", name)]
        found = answer(line, "preflight", "mcp.json", *every, "--timeout", "2", code=15)
        assert [one["exit_code"] for one in found["checks"]] == list(codes.values())
        found = answer(line, "preflight", "mcp.json", "--timeout", "2", code=15)
        told = {"git": "ok", "dead": "down", "slow": "down"} | dict.fromkeys(
            ("mail", "post", "worn"), "login"
        )
        told |= dict.fromkeys(("odd", "away"), "misconfigured")
        assert states(found) == told


def test_k7_a_server_that_nothing_needed_is_of_is_not_started(line: CommandLine) -> None:
    log = line.folder / "started"
    # It never answers, so to wait for it would take its whole start timeout, which is longer than any test.
    slow = {**entry(READ, silent=["initialize", "server/discover"], log=str(log)), "start_timeout": 3000}
    configure(line, {"git": entry(READ), "slow": slow, "dead": DEAD})
    for name in ("git/read", "git_read", "git"):
        assert line.run("preflight", "mcp.json", "--expect", name).returncode == 0
    assert not log.exists()


@pytest.mark.needs("secret_commands")
def test_k7_a_program_for_secrets_of_a_server_that_is_not_needed_does_not_run(line: CommandLine) -> None:
    secret = f"${{command:{sys.executable} -c \"open('ran', 'a').close(); print('x' * 9)\"}}"
    configure(line, {"git": entry(READ), "other": {**entry(READ), "env": {"KEY": secret}}})
    for name in ("git", "git/read", "git_read"):
        assert line.run("preflight", "mcp.json", "--expect", name).returncode == 0
    assert not (line.folder / "ran").exists()
    assert line.run("preflight", "mcp.json", "--expect", "other").returncode == 0
    assert (line.folder / "ran").exists()


@pytest.mark.parametrize("seconds", ["inf", "-inf", "nan", "1e999"])
def test_k7_a_timeout_without_an_end_is_a_mistake_in_the_command_line(
    line: CommandLine, seconds: str
) -> None:
    configure(line, {"git": entry(READ)})
    done = line.run("preflight", "mcp.json", "--timeout", seconds)
    assert done.returncode == 2 and not done.stdout
    assert "--timeout" in done.stderr and "a number" in done.stderr


def test_k7_a_tool_of_a_server_that_is_down_is_not_called_missing(line: CommandLine) -> None:
    configure(line, {"git": entry(READ), "dead": DEAD})
    found = answer(line, "preflight", "mcp.json", "--expect", "dead/read", "--expect", "dead_read", code=10)
    assert [one["state"] for one in found["checks"]] == ["down", "down"]
    assert "no license" in found["checks"][0]["note"]
    found = answer(line, "preflight", "mcp.json", "--expect", "git_reed", code=12)
    assert "did you mean git_read?" in found["checks"][0]["note"]


def test_k7_what_is_disabled_is_missing_and_how_to_enable_it_is_said(line: CommandLine) -> None:
    # A rule about a server that is not started is no mistake.
    rules = {"permissions": {"deny": ["git/read"]}, "limits": {"off/read": {"rate": "3/min"}}}
    configure(line, {"git": entry(READ), "off": {**entry(READ), "disabled": True}}, **rules)
    for name in ("off", "off/read"):
        found = answer(line, "preflight", "mcp.json", "--expect", name, code=12)
        assert "mcp-toolset enable FILE off" in found["checks"][0]["note"]
    assert line.run("preflight", "mcp.json").returncode == 0
    off = {**entry(READ), "disabled": True}
    configure(line, {"git": off, "off": off}, **rules)
    assert line.run("list", "mcp.json").returncode == 0


def test_k7_a_definition_that_differs_from_its_pin_is_changed(line: CommandLine) -> None:
    configure(line, {"git": entry({**READ, "inputSchema": MORE}, tool("fresh"))})
    pins = {"git": {one["name"]: canonical(ToolDefinition.from_wire(one)) for one in (READ, DROP)}}
    LockFile(line.folder / "mcp.lock.json").update(lambda _: pins)
    before = (line.folder / "mcp.lock.json").read_bytes()
    found = answer(line, "preflight", "mcp.json", code=13)
    # A new tool is needed by nobody yet; one that is pinned and gone is missing.
    assert states(found) == {"git": "ok", "git/read": "changed", "git/drop": "missing"}
    for name in ("git/read", "git_read", "git/*", "git/fresh"):
        found = answer(line, "preflight", "mcp.json", "--expect", name, code=13)
        assert "mcp-toolset pin" in found["checks"][0]["note"]
    assert line.run("preflight", "mcp.json", "--expect", "git/drop").returncode == 12
    assert (line.folder / "mcp.lock.json").read_bytes() == before


def test_k7_a_tool_that_asks_is_refused_where_nobody_can_be_asked(line: CommandLine) -> None:
    rules = {"ask": ["git/drop"], "for": [{"roles": ["admin"], "allow": ["*"]}]}
    tokens = {"tokens": {"ci": {"token": "t" * 20, "roles": ["admin"]}}}
    configure(line, {"git": entry(READ, DROP)}, permissions=rules, auth=tokens)
    words = ("preflight", "mcp.json", "--expect", "git/drop")
    assert "asks a person" in answer(line, *words)["checks"][0]["note"]
    found = answer(line, *words, "--unattended", code=14)
    assert "toolset.permissions.ask: git/drop" in found["checks"][0]["note"]


@pytest.mark.needs("inbound_auth")
def test_k7_the_verdict_is_that_of_the_caller(line: CommandLine) -> None:
    rules = {"deny": ["git/drop"], "for": [{"roles": ["admin"], "allow": ["*"]}]}
    tokens = {"tokens": {"ci": {"token": "t" * 20, "roles": ["admin"]}}}
    configure(line, {"git": entry(READ, DROP)}, permissions=rules, auth=tokens)
    words = ("preflight", "mcp.json", "--expect", "git/drop")
    assert line.run(*words).returncode == 14
    assert line.run(*words, "--as", "ci").returncode == 0
    assert line.run(*words, "--role", "admin").returncode == 0


def test_k7_a_program_with_mounts_and_without_a_lock_file_is_checked(line: CommandLine) -> None:
    mounted = (
        f"from mcp_toolset import RemoteToolset\ntools = RemoteToolset({hostile(tools=[READ])}, name='git')\n"
    )
    line.write("app.py", mounted)
    assert states(answer(line, "preflight", "app.py")) == {"git": "ok"}
    assert line.run("preflight", "app.py", "--expect", "git/read").returncode == 0


def test_k7_a_file_has_the_names(line: CommandLine) -> None:
    configure(line, {"git": entry(READ)})
    line.write("agent.needs", "# what the nightly agent needs\ngit/read  # to read\n\ngit\n")
    found = answer(line, "preflight", "mcp.json", "--expect-file", "agent.needs")
    assert states(found) == {"git/read": "ok", "git": "ok"}
    line.write("empty.needs", "# nothing\n")
    done = line.run("preflight", "mcp.json", "--expect-file", "empty.needs")
    assert done.returncode == 2 and "names nothing" in done.stderr


def test_k7_faults_are_annotations_of_github_actions(line: CommandLine) -> None:
    configure(line, {"git": entry(READ), "dead": DEAD})
    on = {"GITHUB_ACTIONS": "true"}
    done = line.run("preflight", "mcp.json", "--json", env=on)
    assert json.loads(done.stdout)["exit_code"] == 10
    (said,) = [one for one in done.stderr.splitlines() if one.startswith("::")]
    number = 1 + (line.folder / "mcp.json").read_text().splitlines().index('  "dead": {')
    assert said.startswith(f"::error file=mcp.json,line={number},title=dead%3A down::")
    assert "::" not in line.run("preflight", "mcp.json", "--no-github", env=on).stderr
    line.write("broken.json", "{")
    done = line.run("preflight", "broken.json", "--github")
    assert done.returncode == 1 and "::error file=broken.json,line=1,title=preflight::" in done.stderr


def test_k7_a_hostile_text_is_no_command_of_the_runner(line: CommandLine) -> None:
    said = "\n::set-env name=PATH::/evil\r::error::x%0A"
    bad = {**entry(tool("read")), "args": ["-c", f"import sys; sys.stderr.write({said!r}); sys.exit(1)"]}
    configure(line, {"git": bad})
    done = line.run("preflight", "mcp.json", "--github")
    (said,) = [one for one in (done.stdout + done.stderr).splitlines() if one.startswith("::")]
    assert said.startswith("::error file=mcp.json,line=3,title=git%3A down::") and "%250A" in said
    for name in ("::stop-commands::y", "##[error]x", "a\n::error::x", ""):
        done = line.run("preflight", "mcp.json", "--github", "--expect", name)
        assert done.returncode == 2 and "is no name of a server or tool" in done.stderr
        assert not [one for one in (done.stdout + done.stderr).splitlines() if one.startswith("::")]


def test_k7_the_page_has_the_codes_and_shows_the_example() -> None:
    page = (ROOT / "docs" / "preflight.md").read_text()
    rows = [row.split(" | ")[:2] for row in page.splitlines() if row.startswith("| ") and "`" in row]
    assert {row[1].strip("`"): int(row[0].strip("| ")) for row in rows} == dict(CODES)
    needs = (ROOT / "examples" / "preflight" / "agent.needs").read_text()
    assert needs.partition("\n")[2] in page
    config = load_config(ROOT / "examples" / "preflight" / "mcp.json")
    names = [one for text in needs.splitlines() if (one := text.partition("#")[0].strip())]
    assert not config.misconfigured
    assert needed_servers(config, names) == {one.name for one in config.servers}
    assert needed_servers(config, names[:1]) == {"jira"}
