"""`mcp-toolset check` finds what is wrong on a machine, and names the remedy."""

from __future__ import annotations

import json
import os
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, line
from tests.cli.desk import Desk

from mcp_toolset.cli import examination
from mcp_toolset.cli.examination import ExaminedMachine, Finding, examine
from mcp_toolset.security.vault import Vault

FOLDER_VARIABLE = "MCP_TOOLSET_CREDENTIALS"
KEY_VARIABLE = "MCP_TOOLSET_KEY"

__all__ = ["line"]

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT / "tests" / "support" / "plain_server.py"
Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Examines a machine of its own; returns the findings that are not in order, by what they are about."""

    def run(
        cursor: object = None, *, platform: str = "linux", python: str = sys.executable, **environ: str
    ) -> dict[str, Finding]:
        environ = {"PATH": str(Path(sys.executable).parent), **environ}
        desk = Desk(tmp_path, platform=platform, environ=environ)
        if cursor is not None:
            desk.write(cursor if isinstance(cursor, str) else json.dumps({"mcpServers": cursor}))
        vault = Vault({FOLDER_VARIABLE: str(tmp_path / "secrets"), KEY_VARIABLE: "a key of this test"})
        found = examine(
            ExaminedMachine(
                desk.machine, vault, tmp_path / "cache", tmp_path / "log", free_port(), "mcp-toolset", python
            )
        )
        return {one.about: one for one in found if one.state != "ok"}

    return run


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_e2_nothing_is_wrong_on_a_machine_in_order(look: Look) -> None:
    assert look({"git": {"command": sys.executable}, "web": {"url": "https://host/mcp"}}) == {}


def test_e2_a_client_that_cannot_start_its_server_is_found(look: Look) -> None:
    found = look({"git": {"command": "no-such-program"}, "off": {"command": "gone", "disabled": True}})
    assert list(found) == ["Cursor: git"]
    assert found["Cursor: git"].state == "error"
    assert (
        "command not found: no-such-program; install it, or write its full path" in found["Cursor: git"].note
    )


def test_e2_a_file_of_a_client_that_cannot_be_read_is_found(look: Look) -> None:
    assert "not valid JSON" in look("{")["client"].note


def test_e2_an_entry_of_ours_is_tried_and_its_file_is_checked(look: Look, tmp_path: Path) -> None:
    broken = tmp_path / "mcp-toolset"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    found = look({"hub": {"command": str(broken), "args": ["serve", "/a.json"]}})
    assert "ended with exit code 3; install it again" in found["Cursor: hub"].note
    broken.write_text("#!/bin/sh\nexit 0\n")
    found = look({"hub": {"command": str(broken), "args": ["serve", str(tmp_path / "gone.json")]}})
    assert "gone.json, which is missing; correct" in found["Cursor: hub"].note
    served = tmp_path / "mcp.json"
    served.write_text(json.dumps({"mcpServers": {"web": {"url": "${NOT_SET_HERE}"}}}))
    found = look({"hub": {"command": str(broken), "args": ["serve", str(served)]}})
    assert "environment variable NOT_SET_HERE is not set" in found["Cursor: hub"].note
    served.write_text(json.dumps({"mcpServers": {"git": {"command": "no-such-program"}}}))
    found = look({"hub": {"command": str(broken), "args": ["serve", str(served)]}})
    assert "git: command not found: no-such-program; install it" in found["Cursor: hub"].note


def test_e2_on_macos_programs_that_the_dock_does_not_find_are_named(look: Look, tmp_path: Path) -> None:
    program = tmp_path / "npx-of-mine"
    program.write_text("")
    program.chmod(0o755)
    found = look({"web": {"command": "npx-of-mine"}}, platform="darwin", PATH=str(tmp_path))
    assert f"write {program} into" in found["Cursor: web"].note


def test_e2_another_installation_before_this_one_is_found(look: Look, tmp_path: Path) -> None:
    other = tmp_path / "other" / "mcp-toolset"
    other.parent.mkdir()
    other.write_text("")
    other.chmod(0o755)
    assert f"{other} comes before" in look(PATH=str(other.parent))["PATH"].note
    assert "is not on PATH" in look(PATH="")["PATH"].note


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
def test_e2_secrets_that_others_can_read_are_found(look: Look, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o755)
    assert "other users can read" in look()["secrets"].note


def test_e2_a_folder_that_cannot_be_made_is_found(look: Look, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "cannot be written" in look()["cache"].note


def test_e2_a_port_that_is_taken_is_a_warning(line: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = line.run("check", "--port", str(port), "--json")
    found: dict[str, Any] = {one["examined"]: one for one in json.loads(done.stdout)["machine"]}
    assert found["port"]["state"] == "warning"
    assert "end the program that listens there, or choose another --port" in found["port"]["note"]


def test_e2_a_small_limit_of_open_files_is_a_warning(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "FEW_FILES", 10**9)
    assert "run: ulimit -n 4096" in look()["open files"].note


def test_e2_an_error_is_the_exit_code(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"git": {"command": "no-such-program"}}}))
    done = line.run("check")
    assert done.returncode == 1
    assert "Cursor: git" in done.stdout and "1 error" in done.stdout


def test_e2_the_file_that_is_named_is_examined_too(line: CommandLine) -> None:
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"a": {"comand": "x"}, "b": {"command": "gone-program"}}})
    )
    done = line.run("check", "mcp.json", "--machine", "--json")
    told = json.loads(done.stdout)
    (found,) = [one["note"] for one in told["machine"] if one["examined"] == "mcp.json"]
    assert "mcpServers.a.comand: unknown key; did you mean `command`?" in told["servers"][0]["note"]
    assert found.startswith("b: command not found: gone-program")


def about(line: CommandLine, examined: str, *options: str) -> list[tuple[str, str]]:
    """State and note of each finding about one thing."""
    done = line.run("check", *options, "--json")
    return [(x["state"], x["note"]) for x in json.loads(done.stdout)["machine"] if x["examined"] == examined]


def test_u96_check_starts_each_server_and_names_the_dead_one_with_its_reason(line: CommandLine) -> None:
    crash = {"command": sys.executable, "args": ["-c", "raise SystemExit('the licence file is missing')"]}
    plain = {"command": sys.executable, "args": [str(UPSTREAM), '{"tools": ["echo"]}']}
    line.write("mcp.json", json.dumps({"mcpServers": {"a": plain, "dead": crash}}))
    (state, note), second = sorted(about(line, "mcp.json", "mcp.json", "--machine"))
    assert second == ("ok", "a: answers, with 1 tool")
    assert state == "error" and note.startswith("dead: ") and "the licence file is missing" in note
    assert line.run("check", "mcp.json", "--machine").returncode == 1
    assert about(line, "mcp.json", "mcp.json", "--machine", "--no-start") == []


def test_u96_a_server_of_two_clients_is_told_once(line: CommandLine) -> None:
    crash = {"command": sys.executable, "args": ["-c", "raise SystemExit('the licence file is missing')"]}
    for folder in (".cursor", ".gemini"):
        (line.folder / folder).mkdir()
        name = "mcp.json" if folder == ".cursor" else "settings.json"
        (line.folder / folder / name).write_text(json.dumps({"mcpServers": {"dead": crash}}))
    told = json.loads(line.run("check", "--json").stdout)["machine"]
    found = [(x["examined"], x["state"]) for x in told if "dead" in x["examined"]]
    assert found == [("Cursor: dead", "error")]


def test_u96_a_program_that_is_missing_is_told_once(line: CommandLine) -> None:
    line.write("mcp.json", json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    ((state, note),) = about(line, "mcp.json", "mcp.json", "--machine")
    assert state == "error" and "command not found: no-such-program" in note


def test_e2_every_extra_that_adds_a_package_is_examined() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(examination.EXTRAS) == {name for name, packages in declared.items() if packages}
