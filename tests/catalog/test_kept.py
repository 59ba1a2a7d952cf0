"""What servers list is kept in files that only this user may write, and that nobody depends on."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset import PinPolicy
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.catalog.pins.policy import Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog, KeptFiles
from mcp_toolset.catalog.registry.state_store import StateFile
from mcp_toolset.catalog.search.index_file import copied
from mcp_toolset.catalog.snapshot import take_snapshot
from mcp_toolset.concurrency.atomic_file import require_private
from mcp_toolset.errors import InvalidStateError
from mcp_toolset.search import SearchIndex
from mcp_toolset.server.mounts import folder_for
from mcp_toolset.upstream.mount_state import keep_key
from mcp_toolset.upstream.target import link_to

TOOL = {"name": "a", "description": "The tool.", "inputSchema": {"type": "object"}}
KEPT = KeptCatalog([TOOL], {"name": "s", "version": "1"}, "Be kind.", {"tools": {}}, {"prompts/list": []})


def test_u8_what_is_saved_is_loaded_and_is_this_users_alone(tmp_path: Path) -> None:
    files = KeptFiles(tmp_path / "deep" / "kept")
    assert files.load("k") is None
    files.save("k", KEPT)
    assert KeptFiles(files.folder).load("k") == KEPT
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in files.folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "\udcff",
        json.dumps({"format": "other", "version": 1}),
        json.dumps({**json.loads(KEPT.to_json()), "version": 2}),
        json.dumps({**json.loads(KEPT.to_json()), "tools": "many"}),
    ],
)
def test_u8_a_file_that_cannot_be_used_is_ignored_with_one_warning(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = KeptFiles(tmp_path)
    path = tmp_path / "k.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    path.chmod(0o600)
    assert files.load("k") is None
    assert files.load("k") is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(path) in record.getMessage()
    files.save("k", KEPT)
    assert files.load("k") == KEPT


def test_u8_a_file_that_others_may_write_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = KeptFiles(tmp_path)
    files.save("k", KEPT)
    (tmp_path / "k.json").chmod(0o622)
    assert files.load("k") is None
    assert "chmod" in caplog.text


def test_u8_a_folder_that_cannot_be_made_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    files = KeptFiles(tmp_path / "file" / "kept")
    files.save("k", KEPT)
    files.save("k", KEPT)
    assert files.load("k") is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_u8_the_oldest_files_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.catalog.registry.kept_catalog.MOST_FILES", 2)
    files = KeptFiles(tmp_path)
    for key in ("x", "y", "z"):
        files.save(key, KEPT)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert files.load("z") == KEPT


def test_u8_the_folder_is_told_or_beside_the_state_or_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", "off")
    assert folder_for(None, None) is None
    assert folder_for(None, tmp_path / "state.json") is None
    assert folder_for(tmp_path, None) == tmp_path
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path))
    assert folder_for(None, "state.json") == tmp_path / "catalogs"
    assert folder_for(False, "state.json") is None
    monkeypatch.delenv("MCP_TOOLSET_CACHE")
    assert folder_for(None, tmp_path / "state.json") == tmp_path / "state.json.catalogs"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = folder_for(None, None)
    assert found is not None
    assert found.name == "catalogs"
    assert found.parent.name == "mcp-toolset"


def key(target: Any = "https://host/mcp", *settings: Any, name: str = "up", **options: Any) -> str | None:
    return keep_key(link_to(target, name=name, **options), *settings)


def test_u8_the_key_tells_servers_apart_and_holds_no_credentials() -> None:
    one = key()
    assert one == key(headers={"Authorization": "Bearer secret"})
    assert key(["program"]) == key(["program"], env={"TOKEN": "secret"})
    others = [key("https://other/mcp"), key(name="two"), key(("program",)), key("https://host/mcp", "legacy")]
    assert len({one, *others}) == 5
    asked = [
        key("https://host/mcp", "auto", ("roots", "sampling")),
        key("https://host/mcp", "auto", ("roots",)),
    ]
    assert len(set(asked)) == 2


def changed() -> dict[str, Any]:
    return {**TOOL, "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}


def test_u8_a_lock_file_judges_what_is_remembered_as_it_judges_what_is_live(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock.json")
    first = Pins("up", None, None)
    first.admit(take_snapshot([TOOL]))
    lock.update(lambda servers: {**servers, "up": first.listed()})
    pins = Pins("up", None, lock.entry("up"))
    held = pins.admit(take_snapshot([changed()]), remembered=True)
    assert not held.tools
    assert pins.listed() == {}
    assert list(pins.admit(take_snapshot([TOOL])).tools) == ["a"]


@pytest.mark.parametrize(("policy", "served"), [(None, True), ("quarantine", False)])
def test_u8_without_a_lock_file_what_is_remembered_is_no_pin(policy: Any, *, served: bool) -> None:
    pins = Pins("up", PinPolicy(policy))
    assert list(pins.admit(take_snapshot([TOOL]), remembered=True).tools) == ["a"]
    assert bool(pins.admit(take_snapshot([changed()])).tools) == served


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path, 0o600)
    return path


def test_u124_a_pipe_in_place_of_what_is_kept_blocks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = pipe(tmp_path / "k.json")
    assert KeptFiles(tmp_path).load("k") is None
    assert f"{kept}: what was kept of a server is ignored: it is not a regular file" in caplog.text
    with pytest.raises(InvalidStateError, match="it is not a regular file"):
        StateFile(pipe(tmp_path / "state.json")).load()
    with pytest.raises(InvalidStateError, match="it is not a regular file"):
        copied(pipe(tmp_path / "copied"), require_private)
    with pytest.raises(InvalidStateError, match="it is damaged or cut short"):
        SearchIndex.open(pipe(tmp_path / "index"))
