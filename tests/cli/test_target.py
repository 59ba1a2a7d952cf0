"""What the spelling of a target says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.desk import Desk

from mcp_toolset.cli.target import (
    Command,
    ConfigFile,
    Module,
    ProgramFile,
    Target,
    Url,
    default_name,
    parse_target,
)
from mcp_toolset.errors import TargetError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("mcp.json", "tools.py", "settings"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("mcp.json", ConfigFile("mcp.json")),
        ("settings", ConfigFile("settings")),
        ("tools.py", ProgramFile("tools.py")),
        ("tools.py:app.tools", ProgramFile("tools.py", "app.tools")),
        ("package.module:app.tools", Module("package.module", "app.tools")),
        ("https://host/mcp.json", Url("https://host/mcp.json")),
        ("HTTP://host:80/mcp", Url("HTTP://host:80/mcp")),
    ],
)
def test_each_form_is_recognised_and_written_back(folder: Path, text: str, target: Target):
    assert parse_target(text) == target
    if isinstance(target, Module | ProgramFile):
        assert str(target) == text


def test_a_command_takes_the_place_of_the_target():
    assert parse_target(None, ["tools.py", "-x"]) == Command(("tools.py", "-x"))


@given(st.text(max_size=40))
def test_whatever_is_written_is_a_target_or_a_target_error(text: str):
    try:
        parse_target(text)
    except TargetError as fault:
        assert ";" in str(fault)


@pytest.mark.parametrize(
    ("text", "command", "name"),
    [
        ("tools/notes.py:app", (), "notes"),
        ("package.notes:app", (), "notes"),
        ("servers/hub.json", (), "hub"),
        ("/home/me/project/.mcp.json", (), "project"),
        ("/home/me/project/.cursor/mcp.json", (), "project"),
        ("https://mcp.github.com/mcp", (), "github"),
        ("http://localhost:8000/mcp", (), "localhost"),
        ("http://127.0.0.1:8000/mcp", (), "server"),
        ("notes", (), "notes"),
        (None, ("npx", "-y", "@scope/server-git@1.2"), "server-git"),
        (None, ("uvx", "mcp-server-time==2.1"), "mcp-server-time-2-1"),
        (None, ("python", "-m", "my.server"), "my-server"),
        (None, ("/opt/bin/thing.exe",), "thing"),
        (None, ("docker", "run", "-i", "mcp/fetch"), "fetch"),
    ],
)
def test_a_target_has_a_name_of_its_own(text: str | None, command: tuple[str, ...], name: str):
    assert default_name(text, command) == name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "-W", "ignore", "notes.py"), "notes"),
        (("python3.12", "-X", "utf8", "-m", "notes"), "notes"),
        (("env", "A=1", "B=2", "notes-server"), "notes-server"),
        (("/usr/bin/env", "-u", "HOME", "python", "-Wignore", "notes.py"), "notes"),
        (("node", "--import", "./trace.js", "notes.mjs"), "notes"),
    ],
)
def test_u89_a_command_is_not_named_by_what_starts_it(command: tuple[str, ...], name: str) -> None:
    assert default_name(None, command) == name


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.7"])
def test_u89_a_server_at_an_address_of_digits_is_not_named_by_it(host: str) -> None:
    assert default_name(f"http://{host}:8000/mcp") == "server"


@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=3))
def test_a_default_name_can_be_installed(
    tmp_path_factory: pytest.TempPathFactory, text: str, command: list[str]
):
    name = default_name(text, command)
    assert Desk(tmp_path_factory.getbasetemp()).install("cursor", name=name).changed
