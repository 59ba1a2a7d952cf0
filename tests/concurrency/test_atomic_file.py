"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mcp_toolset.concurrency import atomic_file
from mcp_toolset.concurrency.atomic_file import create_file, replace_file


def modes(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_replaced_file_holds_the_new_bytes_and_no_draft_stays(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(b"old")
    replace_file(file, b"new")
    assert (file.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (b"new", ["state.json"])
    assert modes(file) == 0o600


@pytest.mark.parametrize("fails", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    file = tmp_path / "state.json"
    file.write_bytes(b"old")
    monkeypatch.setattr(atomic_file.os, fails, full)
    with pytest.raises(OSError, match="no space left"):
        replace_file(file, b"new")
    assert (file.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (b"old", ["state.json"])


def test_the_umask_takes_from_a_mode_unless_it_is_exact(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "own", b"", 0o666)
        replace_file(tmp_path / "shared", b"", 0o666, exact=True)
    finally:
        os.umask(before)
    assert (modes(tmp_path / "own"), modes(tmp_path / "shared")) == (0o600, 0o666)


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    create_file(tmp_path / "backup", b"one", 0o600)
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "backup", b"two", 0o600)
    assert (tmp_path / "backup").read_bytes() == b"one"
