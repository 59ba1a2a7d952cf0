"""`mcp-toolset new` begins projects whose own tests pass, and that the other commands take."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, line

from mcp_toolset.cli.commands.new import KINDS, write_project

__all__ = ["line"]


@pytest.mark.parametrize("kind", KINDS)
def test_e6_the_tests_of_a_new_project_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    files = write_project(kind, "my-first", tmp_path)
    assert "MODULE" not in "".join(file.read_text() for file in files)
    monkeypatch.syspath_prepend(tmp_path / "my-first")
    (test,) = [file for file in files if file.name == "test_my_first.py"]
    try:
        tests = [value for name, value in runpy.run_path(str(test)).items() if name.startswith("test_")]
        assert tests
        for run in tests:
            run()
    finally:
        sys.modules.pop("my_first", None)


@pytest.mark.parametrize(("kind", "tools"), [("server", ["add"]), ("toolset", ["add_note", "find_notes"])])
def test_e6_a_new_project_is_a_target(line: CommandLine, kind: str, tools: list[str]) -> None:
    done = line.run("new", kind, "my-tools")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["my-tools/pyproject.toml", "my-tools/my_tools.py"]
    assert "next: cd my-tools && python -m pytest && mcp-toolset list my_tools.py" in done.stdout
    listed = line.run("list", "my-tools/my_tools.py").stdout
    assert [tool for tool in tools if tool not in listed] == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["server", "calendar"], 2, "'calendar' is the name of another module; choose another name"),
        (["server", "My Tools"], 2, "'My Tools' cannot name a module; choose another name"),
        (["app", "tools"], 2, "'app' is no kind; use server, toolset or hook"),
        (["server"], 2, "NAME is missing"),
    ],
)
def test_e6_a_name_that_cannot_be_used_is_refused(
    line: CommandLine, words: list[str], code: int, says: str
) -> None:
    done = line.run("new", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_e6_a_folder_that_exists_is_left_alone(line: CommandLine) -> None:
    (line.folder / "tools").mkdir()
    done = line.run("new", "server", "tools")
    assert done.returncode == 1 and "exists already; choose another name" in done.stderr
    assert list((line.folder / "tools").iterdir()) == []
