"""Adopt and restore with odd names, damaged files, and files that the client changes in between."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.desk import Desk

from mcp_toolset.cli.replacing import mend_of
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError

A, B = {"command": "a-program", "args": ["-x"]}, {"command": "b-program"}


class Home:
    """A machine with Claude Desktop."""

    def __init__(self, root: Path) -> None:
        self.desk = Desk(root, "claude-desktop", environ={"HOME": str(root), "PATH": ""})
        self.file = self.desk.write("")
        self.hub = self.desk.data / "claude-desktop.json"
        """The file into which the servers move."""

    def write(self, servers: object) -> str:
        self.file.write_text(json.dumps({"mcpServers": servers}))
        return self.file.read_text()

    def servers(self) -> dict[str, Any]:
        return json.loads(self.file.read_text())["mcpServers"]

    def adopt(self) -> dict[str, str]:
        return dict(self.desk.adopt().left)

    def restore(self) -> list[str]:
        return self.desk.restore()[1]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("name", ["", " ", "\ud800", "half \udfff"])
def test_e1_a_name_that_no_file_can_have_stays_in_the_client(home: Home, name: str) -> None:
    before = home.write({name: A, "ok": B})
    assert list(home.adopt()) == [name]
    assert [server.name for server in load_config(home.hub).servers] == ["ok"]
    assert name in home.servers()
    home.restore()
    assert home.file.read_text() == before


@pytest.mark.parametrize("name", ["..", "a/b", "ü✓", "x" * 300, "a\nb", "\u202eabc", "a\0b", "search_tools"])
def test_e1_odd_names_are_adopted_and_come_back(home: Home, name: str) -> None:
    before = home.write({name: A, "ok": B})
    assert home.adopt() == {}
    assert [server.name for server in load_config(home.hub).servers] == [name, "ok"]
    home.restore()
    assert home.file.read_text() == before


def test_e1_half_a_character_in_a_value_stays_in_the_client(home: Home) -> None:
    home.write({"bad": {**A, "env": {"K\ud83d": "v"}}, "ok": B})
    assert list(home.adopt()) == ["bad"]


def test_e1_a_link_that_the_client_replaced_by_a_file_is_restored(home: Home) -> None:
    kept = home.desk.home / "dotfiles.json"
    home.file.unlink()
    home.file.symlink_to(kept)
    before = home.write({"a": A})
    home.adopt()
    adopted = home.file.read_text()
    home.file.unlink()
    home.file.write_text(adopted)
    home.restore()
    assert home.file.read_text() == before
    assert not home.hub.exists()
    with pytest.raises(ConfigError, match="were not adopted"):
        home.restore()


def test_e1_a_server_that_took_an_adopted_name_loses_nothing(home: Home) -> None:
    home.write({"a": A})
    home.adopt()
    home.file.write_text(json.dumps({"mcpServers": {**home.servers(), "a": B}}))
    assert home.restore() == []
    assert home.servers() == {"a": B, "a-2": A}


def test_e1_a_server_that_took_an_adopted_name_is_adopted_beside_it(home: Home) -> None:
    home.write({"a": A})
    home.adopt()
    home.file.write_text(json.dumps({"mcpServers": {**home.servers(), "a": B}}))
    home.adopt()
    assert [server.command for server in load_config(home.hub).servers] == ["a-program", "b-program"]
    home.restore()
    assert home.servers() == {"a": A, "a-2": B}
    assert not home.hub.exists()


def test_e1_a_server_with_rules_of_ours_is_taken_up_again(home: Home) -> None:
    before = home.write({"a": A})
    home.adopt()
    hub = json.loads(home.hub.read_text())
    hub["mcpServers"]["a"]["exclude"] = ["delete_*"]
    home.hub.write_text(json.dumps(hub))
    assert home.restore() == ["a"]
    home.adopt()
    (server,) = load_config(home.hub).servers
    assert server.exclude == ("delete_*",)
    assert home.restore() == ["a"]
    assert home.file.read_text() == before


def test_e1_a_broken_file_of_ours_does_not_stop_the_way_back(home: Home) -> None:
    before = home.write({"a": A})
    home.adopt()
    home.hub.write_text("{{")
    assert home.restore() == ["a"]
    assert home.file.read_text() == before
    assert home.hub.read_text() == "{{"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '{"version": 1}', '{"version": 1, "adopted": 3}', '{"version": 1, "path": 3}'],
)
def test_e1_a_damaged_record_names_the_copies(home: Home, text: str) -> None:
    home.write({"a": A})
    home.adopt()
    (record,) = (home.hub.parent / "adopted").glob("*.json")
    record.write_text(text)
    with pytest.raises(ConfigError, match=r"cannot be read .*\.bak are the file as it was; take one"):
        home.restore()
    assert any("cannot be read" in fault for fault in home.desk.found().faults)


def test_e1_a_full_disk_is_not_called_a_matter_of_permissions() -> None:
    assert mend_of(OSError(errno.ENOSPC, "No space left on device")) == "free some space on the disk"
    assert mend_of(OSError(errno.EACCES, "Permission denied")) == "check the folder's permissions"
