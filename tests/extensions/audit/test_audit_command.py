"""`mcp-toolset audit` and `serve --audit`: what is recorded, shown, filtered, followed and verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, command, environment, line
from tests.cli.in_process import run_on_terminal
from tests.cli.pseudo import CTRL_C, terminal

from mcp_toolset.audit import AuditLog

__all__ = ["line"]

KEY = "a key that nobody guesses"
SERVED = """
from mcp_toolset import serve, tool

@tool
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

serve(add)
"""


def some(path: Path, key: str | None = None) -> None:
    with AuditLog(path, key=key).opened() as log:
        log.record("call", tool="create", server="github", who="alice", outcome="result", duration=0.012)
        log.record("call", tool="pay", who="bob", outcome="refused", reason="unknown tool", rule="deny pay")
        log.record("grant", tool="pay", who="alice", outcome="issued")


def test_i9_show_prints_a_line_for_each_event_and_filters(line: CommandLine) -> None:
    some(line.folder / "audit.jsonl")
    done = line.run("audit", "show", "audit.jsonl")
    assert done.returncode == 0, done.stderr
    said = [each[20:] for each in done.stdout.splitlines()]
    assert said == [
        "started",
        "result github/create, alice (12 ms)",
        "refused pay, bob: unknown tool, deny pay",
        "grant issued pay, alice",
        "stopped",
    ]

    def shown(*options: str) -> list[int]:
        done = line.run("audit", "show", "audit.jsonl", "--json", *options)
        assert done.returncode == 0, done.stderr
        return [json.loads(each)["seq"] for each in done.stdout.splitlines()]

    assert shown() == [1, 2, 3, 4, 5]
    assert shown("--tool", "github/*") == [2] and shown("--tool", "p*") == [3, 4]
    assert shown("--who", "alice") == [2, 4] and shown("--outcome", "refused") == [3]
    assert shown("--event", "call", "--who", "bob") == [3]
    assert shown("--since", "1d") == [1, 2, 3, 4, 5] and shown("--since", "2999-01-01") == []
    wrong = line.run("audit", "show", "audit.jsonl", "--since", "yesterday")
    assert wrong.returncode == 2 and "write 2026-11-22T08:00, or 90m" in wrong.stderr
    gone = line.run("audit", "show", "none.jsonl")
    assert gone.returncode == 1 and "there is no audit log" in gone.stderr


def test_u82_what_a_caller_is_called_makes_no_line_of_its_own(line: CommandLine) -> None:
    forged = "x)\n2026-11-28 04:32:36 result pay, bob\r\x1b[2K\u202e"
    with AuditLog(line.folder / "audit.jsonl").opened() as log:
        log.record("call", tool=forged, who=forged, client=forged, outcome="refused", reason=forged)
    done = line.run("audit", "show", "audit.jsonl")
    said = done.stdout.splitlines()
    assert [each[20:].split()[0] for each in said] == ["started", "refused", "stopped"]
    assert "\\n2026-11-28 04:32:36 result pay, bob\\r\\u{1b}[2K\\u{202e}" in said[1]


def test_i9_show_fits_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path).opened() as log:
        log.record("call", tool="create_issue", server="github", outcome="refused", reason="a reason " * 8)
    code, text = run_on_terminal(
        ["audit", "show", str(path)], tmp_path, environment(tmp_path, {"COLUMNS": "60"}), 60
    )
    assert code == 0
    assert "refused github/create_issue" in text
    assert all(len(each.rstrip()) <= 60 for each in text.splitlines())


def test_i9_verify_says_how_many_lines_are_unbroken_or_which_is_not(line: CommandLine) -> None:
    path = line.folder / "audit.jsonl"
    some(path)
    done = line.run("audit", "verify", "audit.jsonl")
    assert done.returncode == 0 and "audit.jsonl: 5 lines, unbroken, from 20" in done.stdout
    path.write_bytes(path.read_bytes().replace(b'"bob"', b'"eve"'))
    done = line.run("audit", "verify", "audit.jsonl")
    assert done.returncode == 1
    assert done.stdout == "audit.jsonl:3: line 3 was changed (2 lines before it are unbroken)\n"
    done = line.run("audit", "verify", "audit.jsonl", "--json")
    assert json.loads(done.stdout)[0]["finding"]["kind"] == "changed"


def test_i9_a_log_with_a_key_is_verified_with_it(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    some(line.folder / "audit.jsonl", KEY)
    done = line.run("audit", "verify", "audit.jsonl")
    assert done.returncode == 1 and "--key-env" in done.stdout
    done = line.run("audit", "verify", "audit.jsonl", "--key-env", "NO_SUCH_KEY")
    assert done.returncode == 2 and "NO_SUCH_KEY is not set" in done.stderr
    monkeypatch.setenv("AUDIT_KEY", KEY)
    done = line.run("audit", "verify", "audit.jsonl", "--key-env", "AUDIT_KEY")
    assert done.returncode == 0 and KEY not in done.stdout + done.stderr


def test_i9_follow_shows_what_is_written_later_and_after_a_rotation(
    line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, max_bytes=2_000, max_files=50)
    with log.opened():
        log.record("call", tool="first")
        with terminal(command("audit", "show", str(path), "--event", "call", "--follow"), tmp_path) as shown:
            shown.shows("first")
            for number in range(60):
                log.record("call", tool=f"later_{number}")
            screen = shown.shows("later_59")
            assert all(f"later_{number}" in screen for number in range(60))
            shown.type(CTRL_C)
            assert shown.end() == 130


def test_i9_serve_writes_the_log_that_its_configuration_names_and_list_does_not(line: CommandLine) -> None:
    (line.folder / "app.py").write_text(SERVED)
    program, *rest = line.script(line.folder / "app.py")
    servers = {"own": {"command": program, "args": rest}}
    config = {"mcpServers": servers, "toolset": {"audit": {"path": "logs/audit.jsonl", "max_files": 3}}}
    (line.folder / "mcp.json").write_text(json.dumps(config))
    assert line.run("list", "mcp.json").returncode == 0
    assert not (line.folder / "logs").exists()
    config["toolset"] = {"audit": {"path": "x", "maxbytes": 5}}
    (line.folder / "wrong.json").write_text(json.dumps(config))
    done = line.run("list", "wrong.json")
    assert done.returncode == 1 and "toolset.audit" in done.stderr
    assert "did you mean `max_bytes`" in done.stderr


def test_i9_serve_audit_records_the_calls_of_a_client_on_stdio(line: CommandLine) -> None:
    (line.folder / "app.py").write_text(SERVED)
    client = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "desk", "version": "1"}}
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {**client, "capabilities": {}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    lines = "".join(json.dumps(one) + "\n" for one in requests)
    done = line.run("serve", "app.py", "--audit", "audit.jsonl", stdin=lines)
    assert '"3"' in done.stdout, done.stderr
    found = [json.loads(each) for each in (line.folder / "audit.jsonl").read_text().splitlines()]
    assert [one["event"] for one in found] == ["started", "call", "stopped"]
    assert found[1]["tool"] == "add" and found[1]["client"] == "desk 1" and found[1]["outcome"] == "result"
    assert line.run("audit", "verify", "audit.jsonl").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "list mcp.json",
        "list mcp.json --servers",
        "search mcp.json add",
        "call mcp.json calc_add a=1 b=2",
        "explain mcp.json",
    ],
)
def test_i9_a_command_works_beside_the_server_that_writes_the_audit_log(
    line: CommandLine, words: str
) -> None:
    server = line.entry("serve", str(line.folder / "calc.py"))
    entry = {"mcpServers": {"calc": {**server, "start": "lazy"}}, "toolset": {"audit": "audit.jsonl"}}
    line.write("mcp.json", json.dumps(entry))
    with AuditLog(line.folder / "audit.jsonl").opened():
        for _ in range(2):
            done = line.run(*words.split())
            assert (done.returncode, done.stderr) == (0, "")
            assert "stopped" not in done.stdout
