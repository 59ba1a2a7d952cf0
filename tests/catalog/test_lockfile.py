"""The file of pins: atomic, reviewable, shared by processes, and never guessed at (F24, F37, F42)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset.catalog.pins.lockfile import LockFile, Servers, lock_beside
from mcp_toolset.errors import ConfigError

TOOL: dict[str, Any] = {"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}


def put(server: str, *tools: dict[str, Any]) -> Any:
    def change(servers: Servers) -> Servers:
        return {**servers, server: {tool["name"]: tool for tool in tools}}

    return change


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mcp.lock.json"


@pytest.fixture
def written(path: Path) -> LockFile:
    file = LockFile(path)
    file.update(put("up", TOOL))
    return file


@pytest.mark.parametrize(
    ("config", "lock"),
    [("mcp.json", "mcp.lock.json"), (".mcp.json", ".mcp.lock.json"), ("a.b.jsonc", "a.b.lock.json")],
)
def test_p8_the_lock_lies_beside_the_configuration(config: str, lock: str):
    assert lock_beside(Path("x") / config) == Path("x") / lock


def test_p8_what_is_written_is_read_and_a_second_writing_changes_nothing(written: LockFile, path: Path):
    assert LockFile(path).servers() == {"up": {"add": TOOL}}
    before = path.stat()
    written.update(put("up", TOOL))
    assert path.stat() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_p8_the_file_is_sorted_a_line_for_each_value_and_hides_nothing(path: Path):
    tool = TOOL | {"description": "سلام \u200b\x7f\U000e0041é"}
    LockFile(path).update(put("up", tool | {"name": "b"}, tool | {"name": "a"}))
    text = path.read_text()
    assert text.endswith("}\n") and text.index('"a": {') < text.index('"b": {')
    assert "سلام \\u200b\\u007f\\udb40\\udc41é" in text
    assert LockFile(path).servers()["up"]["a"] == tool | {"name": "a"}


BROKEN = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "another program's": '{"lockfileVersion": 3, "packages": {}}',
    "a later version": '{"mcpToolsetLock": 2, "servers": {}}',
    "no servers": '{"mcpToolsetLock": 1}',
    "servers that are a list": '{"mcpToolsetLock": 1, "servers": []}',
    "a merge conflict": '{"mcpToolsetLock": 1,\n<<<<<<< HEAD\n"servers": {}}',
    "a key twice": '{"mcpToolsetLock": 1, "servers": {}, "servers": {}}',
    "a bomb of depth": "[" * 100_000,
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_f37_a_broken_or_foreign_file_is_named_and_left_as_it_is(content: str | bytes, path: Path):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"mcp\.lock\.json: .*;"):
        LockFile(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("key", ["description", "name", "inputSchema"])
def test_f37_a_definition_that_was_edited_by_hand_does_not_fit_its_digest(
    key: str, written: LockFile, path: Path
):
    found = json.loads(path.read_text())
    found["servers"]["up"]["add"]["definition"][key] = "other"
    path.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match="up/add: the definition does not fit its digest"):
        LockFile(path)


def test_f37_a_file_that_breaks_or_goes_while_it_is_used_accepts_nothing(written: LockFile, path: Path):
    path.write_text("{")
    assert written.refreshed("up") == {"add": TOOL}
    path.unlink()
    assert written.refreshed("up") == {"add": TOOL}
    with pytest.raises(ConfigError, match="mcp"):
        path.write_text("{")
        written.update(put("up"))
    assert path.read_text() == "{"


def test_f24_what_another_process_writes_is_seen(path: Path):
    reader = LockFile(path).entry("up")
    assert reader.refreshed() is None
    LockFile(path).update(put("up", TOOL))
    assert reader.refreshed() == {"add": TOOL}
    LockFile(path).update(put("up"))
    assert reader.refreshed() == {}


WRITER = """
import sys
from mcp_toolset.catalog.pins.lockfile import LockFile
file = LockFile(sys.argv[1])
for number in range(20):
    file.update(lambda servers: {**servers, f"{sys.argv[2]}{number}": {}})
"""


def test_f24_processes_that_write_at_once_lose_nothing(path: Path):
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(LockFile(path).servers()) == 60
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_f24_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path, written: LockFile, path: Path):
    path.chmod(0o666)
    link = tmp_path / "elsewhere.lock.json"
    link.symlink_to(path.name)
    LockFile(link).update(put("up"))
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o666, "whatever the umask takes"
    assert LockFile(path).servers() == {"up": {}}


def test_f24_a_link_to_nowhere_is_written_through(tmp_path: Path):
    (tmp_path / "link.lock.json").symlink_to("target.lock.json")
    LockFile(tmp_path / "link.lock.json").update(put("up", TOOL))
    assert LockFile(tmp_path / "target.lock.json").servers() == {"up": {"add": TOOL}}


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_f37_what_is_no_file_is_refused_at_once(kind: str, path: Path):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name)
    with pytest.raises(ConfigError, match=r"mcp\.lock\.json: "):
        LockFile(path)


def test_f24_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path: Path):
    file = LockFile(tmp_path / "none" / "mcp.lock.json")
    with pytest.raises(ConfigError, match=r"none/mcp\.lock\.json: cannot be written"):
        file.update(put("up"))


def test_f24_a_folder_that_takes_no_file_is_an_error_that_names_the_file():
    # Not even root may create a file here.
    file = LockFile("/proc/self/mcp.lock.json")
    with pytest.raises(ConfigError, match=r"/proc/self/mcp\.lock\.json: cannot be written"):
        file.update(put("up"))
