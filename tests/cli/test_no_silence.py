"""A command says why it does nothing, also to a program that reads JSON."""

from __future__ import annotations

import io
import json

import pytest
from tests.cli.commandline import CommandLine, line

from mcp_toolset.cli.output import Column, draw

__all__ = ["line"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("option", ["--port", "--host", "--drain", "--allow-host", "--allow-origin"])
def test_u100_an_option_of_http_without_http_is_refused(line: CommandLine, option: str) -> None:
    done = line.here("serve", "kit.py:echo", option, "8123")
    assert done.returncode == 2 and f"{option} has no effect on stdio: add --transport http" in done.stderr


def test_u100_uninstall_of_an_adopted_server_says_where_it_is(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    assert line.run("install", "cursor", "--adopt", "--yes").returncode == 0
    done = line.run("uninstall", "cursor", "gone")
    assert done.returncode == 1 and "gone is behind mcp-toolset; remove gone from " in done.stderr
    assert "mcp-toolset uninstall cursor --adopted" in done.stderr


@pytest.mark.parametrize("words", [("list", "gone.json"), ("explain", "kit.py:echo", "zzzz")])
def test_u100_a_command_that_fails_says_why_in_json_too(line: CommandLine, words: tuple[str, ...]) -> None:
    done = line.run(*words, "--json")
    assert done.returncode == 1
    (reason,) = json.loads(done.stdout).values()
    assert reason in done.stderr and words[-1] in reason


def test_u100_an_unknown_tool_gets_a_mend(line: CommandLine) -> None:
    done = line.run("explain", "kit.py:echo", "zzzz")
    assert "there is no tool 'zzzz'; explain without TOOL shows every tool" in done.stderr


@pytest.mark.parametrize("columns", ["40", "120"])
def test_u100_nothing_is_bold_with_no_color(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", columns)
    screen = Screen()
    draw(screen, [Column("tool"), Column("description", prose=True)], [["add", "Add two numbers. " * 5]])
    assert "add" in screen.getvalue() and "\x1b" not in screen.getvalue()
