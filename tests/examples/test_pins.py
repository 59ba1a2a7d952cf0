"""The examples of docs/pins.md say what the page says they do (P8)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from mcp_toolset import RemoteToolset
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "examples" / "pins"


def test_p8_policies_of_the_configuration_are_read() -> None:
    config = load_config(EXAMPLES / "mcp.json")
    read = [(server.name, server.pins, server.new_tools, server.hidden_text) for server in config.servers]
    assert read == [("git", "quarantine", None, "strip"), ("erp", "warn", "warn", "refuse")]
    assert config.lock == EXAMPLES / "mcp.lock.json"


def test_p8_a_program_names_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no lock file notes.lock.json"):
        runpy.run_path(str(EXAMPLES / "app.py"))
    LockFile("notes.lock.json").update(lambda _: {"notes": {}})
    notes = runpy.run_path(str(EXAMPLES / "app.py"))["notes"]
    assert isinstance(notes, RemoteToolset)
    entry = notes.connection.tools.pins.entry
    assert entry is not None and (entry.server, str(entry.file.path)) == ("notes", "notes.lock.json")
