"""A configuration that would serve itself is refused, in every way in which one can write it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.configured import BOUND, Folder

from mcp_toolset import load_toolset
from mcp_toolset.config import chain
from mcp_toolset.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def symlink(path: Path) -> str:
    (path.parent / "link.json").symlink_to(path)
    return str(path.parent / "link.json")


def hard_link(path: Path) -> str:
    os.link(path, path.parent / "hard.json")
    return str(path.parent / "hard.json")


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "absolute": str,
    "relative": lambda path: "mcp.json",
    "dots": lambda path: f"{path.parent}/../{path.parent.name}/./mcp.json",
    "symlink": symlink,
    "hard link": hard_link,
}
LAUNCHERS = {
    "name": ["mcp-toolset"],
    "path": ["/opt/some where/bin/mcp-toolset"],
    "windows": ["C:\\tools\\mcp-toolset.exe"],
    "module": [sys.executable, "-m", "mcp_toolset"],
    "main": [sys.executable, "-m", "mcp_toolset.cli.main"],
    "file": [sys.executable, "/site-packages/mcp_toolset/__main__.py"],
    "uvx": ["uvx", "mcp-toolset"],
    "uvx version": ["uvx", "mcp-toolset@1.0"],
    "uvx from": ["uvx", "--from", "mcp-toolset[all]==1.0", "mcp-toolset"],
    "uv run": ["uv", "run", "--with", "x", "mcp-toolset"],
    "env": ["env", "A=1", "mcp-toolset"],
}


def refused(folder: Folder, *argv: str) -> str:
    program, *arguments = argv
    entry = {"command": program, "args": arguments, "cwd": str(folder.path)}
    folder.write({"good": {"command": "x"}, "hub": entry})
    (bad,) = load_toolset(folder.config).config.misconfigured
    assert bad.name == "hub"
    return bad.fault


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_u15_its_own_file_by_any_path(folder: Folder, spelling: str) -> None:
    folder.write({})
    target = SPELLINGS[spelling](folder.config)
    folder.config.write_text(
        json.dumps({"mcpServers": {"hub": {"command": "mcp-toolset", "args": ["serve", target]}}})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.path)
        (bad,) = load_toolset(folder.config).config.misconfigured
    assert f"{folder.config}: server 'hub' serves the file that contains it" in bad.fault
    assert "remove it, or have it serve another file" in bad.fault


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_u15_its_own_file_by_any_launcher(folder: Folder, launcher: str) -> None:
    assert "each level would start the next" in refused(
        folder, *LAUNCHERS[launcher], "serve", "--deferred", "mcp.json"
    )


def test_u15_its_own_file_in_a_line_for_a_shell(folder: Folder) -> None:
    assert "each level" in refused(folder, "sh", "-c", "exec mcp-toolset serve ./mcp.json")
    assert "each level" in refused(folder, "mcp-toolset", "serve", "--", "mcp-toolset", "serve", "mcp.json")


def test_u15_a_chain_through_other_files_is_refused_and_shown(folder: Folder) -> None:
    for name, following in (("b", "c"), ("c", "mcp")):
        servers = {"next": {"command": "uvx", "args": ["mcp-toolset", "serve", f"{following}.json"]}}
        entry = {"mcpServers": {"next": {**servers["next"], "cwd": str(folder.path)}}}
        (folder.path / f"{name}.json").write_text(json.dumps(entry))
    fault = refused(folder, "mcp-toolset", "serve", str(folder.path / "b.json"))
    assert f"{folder.config} → {folder.path}/b.json → {folder.path}/c.json → {folder.config}" in fault


@pytest.mark.parametrize(
    "argv",
    [
        ["mcp-toolset", "serve", "other.json"],
        ["mcp-toolset", "serve", "app.py"],
        ["mcp-toolset", "list", "mcp.json"],
        ["cat", "mcp.json"],
    ],
)
def test_u15_other_files_and_programs_are_served(folder: Folder, argv: list[str]) -> None:
    (folder.path / "other.json").write_text('{"mcpServers": {"x": {"command": "y"}}}')
    (folder.path / "app.py").write_text("")
    folder.write({"hub": {"command": argv[0], "args": argv[1:], "cwd": str(folder.path)}})
    assert load_toolset(folder.config).config.misconfigured == ()


def test_u15_a_file_that_is_served_above_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write({})
    symlink(folder.config)
    for variables in (chain.below(folder.path / "link.json"), {chain.VARIABLE: "nonsense"}):
        monkeypatch.setenv(chain.VARIABLE, variables[chain.VARIABLE])
        if "nonsense" in variables.values():
            load_toolset(folder.config)
            continue
        with pytest.raises(ConfigError, match="has started this bridge, which would serve it again"):
            load_toolset(folder.config)


def test_u15_bridges_start_each_other_only_so_deep(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write({})
    for number in range(chain.DEPTH):
        other = folder.path / f"{number}.json"
        other.write_text("{}")
        load_toolset(folder.config)
        monkeypatch.setenv(chain.VARIABLE, chain.below(other)[chain.VARIABLE])
    with pytest.raises(ConfigError, match="8 bridges have started each other"):
        load_toolset(folder.config)


@pytest.mark.anyio
async def test_u15_a_program_that_serves_the_file_ends_at_the_second_level(folder: Folder) -> None:
    program = folder.path / "app.py"
    program.write_text(f"from mcp_toolset import serve\nserve({str(folder.config)!r})\n")
    folder.write({"again": {"command": sys.executable, "args": [str(program)]}, "good": folder.entry("a")})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            states = server.statuses()
            assert states["good"].state == "ready"
            assert states["again"].state == "offline"
            assert "would serve it again" in states["again"].reason
            assert str(folder.config) in states["again"].reason
