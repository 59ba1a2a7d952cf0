"""A file that is there is not created again; what else holds of files is tested where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_toolset.concurrency.atomic_file import create_file


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    create_file(tmp_path / "backup", b"one", 0o600)
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "backup", b"two", 0o600)
    assert (tmp_path / "backup").read_bytes() == b"one"
