"""`mcp-toolset logs`: what servers of this user have logged, from a real `serve` to the screen."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import PATIENCE, CommandLine, command, environment
from tests.cli.pseudo import CTRL_C, terminal
from tests.cli.screening import plain
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder
from tests.support.warm import Warm

from mcp_toolset.serving.log_reading import LogReader

DEAD = "import sys; print('no module named orders; key is k3y-of-orders', file=sys.stderr); sys.exit(3)"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCP_TOOLSET_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("TZ", "UTC")
    return tmp_path / "log"


@pytest.fixture
def cli(tmp_path: Path, warm: Warm) -> CommandLine:
    return CommandLine(tmp_path, warm)


def line(message: str, level: str = "info", minute: int = 0, **more: Any) -> Mapping[str, Any]:
    return {
        "time": f"2026-11-23T10:{minute:02d}:00.000Z",
        "level": level,
        "message": message,
        "pid": 7,
        **more,
    }


def write(path: Path, run: str, *lines: Mapping[str, Any], part: int = 1) -> None:
    path.mkdir(exist_ok=True)
    with (path / f"{run}.{part:04d}.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in lines)


def filled(path: Path) -> None:
    desktop = [
        line("mcp-toolset 1 serves hub", served="/home/me/mcp.json", logger="mcp_toolset.serving"),
        line("no module named orders", minute=2, server="orders", logger="mcp_toolset.stderr.orders"),
        line("offline: Connection closed", "warning", 3, server="orders", client="Claude 1.2"),
        line(
            "tool pay raised", "error", 5, server="bank", error="OSError: no", traceback="Traceback:\n  pay()"
        ),
    ]
    write(path, "20261123T100000-7", *desktop)
    cursor = [line("mcp-toolset 1 serves notes", minute=1, served="/home/me/notes.json")]
    cursor += [line("ready: 3 tools", minute=4, server="notes", client="cursor 2")]
    write(path, "20261123T100100-8", *cursor)


def said(cli: CommandLine, *arguments: str) -> list[str]:
    done = cli.run("logs", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(one)["message"] for one in done.stdout.splitlines()]


@pytest.mark.anyio
async def test_e2_a_server_that_does_not_start_has_its_last_words_in_the_log(
    cli: CommandLine, path: Path, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    dead = {"command": sys.executable, "args": ["-c", DEAD], "env": {"ORDERS_KEY": "k3y-of-orders"}}
    folder.write({"notes": folder.entry("read"), "orders": dead})
    program, *words = cli.command("serve", str(folder.config))
    target = StdioServerParameters(command=program, args=words, env=environment(tmp_path))

    def known() -> set[str]:
        return {one.text("server") + "/" + one.text("level") for one in LogReader(path).news()}

    with anyio.fail_after(BOUND):
        async with Client(stdio_client(target), mode="legacy") as client:
            await client.call_tool("notes_read")
            await until(lambda: {"orders/info", "orders/warning", "notes/info"} <= known())
    text = cli.run("logs", str(folder.config), "--server", "orders").stdout
    assert "orders stderr: no module named orders; key is ***" in text and "k3y-of-orders" not in text
    assert "WARNING mcp.json[" in text and "orders: offline:" in text and "notes" not in text
    (first,) = said(cli, "--client", "mcp", "--grep", "asks what is served")
    assert first.startswith("mcp ") and "ended" in said(cli)
    other = tmp_path / "other.json"
    assert f"{other}: no such file" in cli.run("logs", str(other)).stderr
    other.write_text('{"mcpServers": {}}')
    assert not said(cli, str(other))


def test_e2_several_processes_are_shown_by_time_and_filtered(cli: CommandLine, path: Path) -> None:
    filled(path)
    every = said(cli)
    assert [one.split()[0] for one in every] == [
        "mcp-toolset",
        "mcp-toolset",
        "no",
        "offline:",
        "ready:",
        "tool",
    ]
    assert said(cli, "--level", "warning") == ["offline: Connection closed", "tool pay raised"]
    assert said(cli, "--server", "orders") == every[2:4]
    assert said(cli, "--client", "CLAUDE") == every[3:4]
    assert said(cli, "--since", "2026-11-23T10:04+00:00") == every[4:]
    assert said(cli, "-n", "2") == every[-2:] and said(cli, "-n", "0") == []
    assert said(cli, "--grep", "connection|3 tools") == every[3:5]
    assert said(cli, "/home/me/notes.json") == [every[1], every[4]]


def test_e2_a_pipe_gets_whole_lines_without_colours(cli: CommandLine, path: Path) -> None:
    filled(path)
    write(path, "20261123T100200-9", line("steer\x1b[2J\nthe terminal", minute=6))
    text = cli.run("logs").stdout
    assert "2026-11-23T10:03:00.000Z WARNING mcp.json[7] orders: offline: Connection closed\n" in text
    assert "ERROR mcp.json[7] bank: tool pay raised (OSError: no)\n    Traceback:\n      pay()\n" in text
    assert "\x1b" not in text and "steer the terminal" in text


def test_e2_lines_that_are_none_are_passed_over(cli: CommandLine, path: Path) -> None:
    filled(path)
    (path / "20261123T100300-9.0001.jsonl").write_bytes(
        b'{"time": "2026\xff\n[1]\n{"message": "whole"}\n{"cut'
    )
    (path / "notes.txt").write_text("of somebody else")
    assert "whole" in said(cli) and len(said(cli)) == 7


def test_e2_mistakes_and_missing_logs_say_what_to_do(cli: CommandLine, path: Path) -> None:
    missing = cli.run("logs")
    assert missing.returncode == 0 and missing.stdout == "" and not path.exists()
    assert "start `mcp-toolset serve mcp.json`, or let a client do so" in missing.stderr
    filled(path)
    other = cli.run("logs", "--server", "order")
    assert "it has lines of the servers bank, notes, orders" in other.stderr
    file = cli.run("logs", env={"MCP_TOOLSET_LOG": str(cli.write("file", ""))})
    assert file.returncode == 1 and "the log cannot be read (Not a directory); correct" in file.stderr
    off = cli.run("logs", env={"MCP_TOOLSET_LOG": "off"})
    assert off.returncode == 1 and "the log is turned off; unset MCP_TOOLSET_LOG" in off.stderr
    config = cli.write("mcp.json", '{"mcpServers": {}, "toolset": {"log": false}}')
    switched = cli.run("logs", str(config), env={"MCP_TOOLSET_LOG": ""})
    assert switched.returncode == 1 and "remove `log` from the section `toolset`" in switched.stderr
    for words, told in (
        (("--since", "soon"), "write 10m, 2h, 3d"),
        (("--grep", "("), "no regular expression"),
        (("--level", "loud"), "'loud' is not one of"),
    ):
        wrong = cli.run("logs", *words)
        assert wrong.returncode == 2 and told in wrong.stderr


def test_e2_a_configuration_names_level_and_folder_of_its_log(cli: CommandLine, path: Path) -> None:
    section = {"log": {"folder": "logs", "level": "error"}}
    config = cli.write("mcp.json", json.dumps({"mcpServers": {}, "toolset": section}))
    filled(cli.folder / "logs")
    done = cli.run("logs", str(config), "--json", env={"MCP_TOOLSET_LOG": ""})
    assert done.returncode == 0 and str(cli.folder / "logs") in done.stderr
    wrong = cli.write("wrong.json", json.dumps({"mcpServers": {}, "toolset": {"log": {"level": "loud"}}}))
    assert "one of debug, info, warning and error" in cli.run("check", str(wrong)).stderr


def test_e2_it_follows_on_a_narrow_terminal_and_ctrl_c_ends_it(cli: CommandLine, path: Path) -> None:
    filled(path)
    for variables, colour in (({}, True), ({"NO_COLOR": "1"}, False)):
        with terminal(command("logs", "-f"), cli.folder, variables, columns=60) as screen:
            screen.shows("tool pay raised")
            run = "20261123T100000-7" if colour else "20261123T100900-9"
            write(path, run, line("a later line " * 12, "warning", 8), part=2)
            shown = screen.shows("later line a later line", "2026-11-23 mcp.json (process 7)")
            assert ("\x1b[33m" in shown) is colour and ("\x1b[31m" in shown) is colour
            screen.type(CTRL_C)
            assert screen.end() == 130 and "Traceback (" not in screen.screen
        assert all(len(one) <= 60 for one in plain(screen.screen).split("\n"))


def test_e2_a_reader_that_leaves_ends_it_quietly(cli: CommandLine, path: Path) -> None:
    filled(path)
    with cli.fork("logs", "-f") as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            process.stdout.close()
            assert process.wait(PATIENCE) == 141
            assert process.stderr is not None and process.stderr.read() == ""
        finally:
            process.kill()


def test_e2_stderr_gets_the_same_lines_as_json(cli: CommandLine, path: Path) -> None:
    cli.write("wrong.json", "{")
    failed = cli.run("serve", "wrong.json", "--log-format", "json")
    (told,) = map(json.loads, failed.stderr.splitlines())
    assert (
        failed.returncode == 1 and told["logger"] == "mcp_toolset.cli" and "not valid JSON" in told["message"]
    )
    assert "ended: wrong.json: line 1" in said(cli, "--level", "error")[0], "and the log tells why"
    cli.write("mcp.json", '{"mcpServers": {"gone": {"command": "no-such-program"}}, "toolset": {"nam": 1}}')
    served = cli.run("serve", "mcp.json", "--log-format", "json", "--log", "off")
    levels = [json.loads(one)["level"] for one in served.stderr.splitlines()]
    assert levels and {*levels} <= {"warning", "error"}
