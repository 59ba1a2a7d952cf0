"""The index of the extensions is what their folders declare."""

from __future__ import annotations

import runpy
from pathlib import Path

from mcp_toolset import _index, extensions

INDEX = Path(extensions.__file__)
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "extensions"))


def test_the_index_says_what_the_folders_declare() -> None:
    assert dict(extensions.TABLE) == SCRIPT["rows"](), "run scripts/extensions"


def test_every_row_of_the_index_has_its_folder() -> None:
    assert {*extensions.TABLE} <= {path.name for path in INDEX.parent.iterdir()}


def test_every_mark_is_explained() -> None:
    told = _index.marked.__doc__ or ""
    for row in extensions.TABLE.values():
        for mark in row.get("marks", "").split():
            assert f"`{mark}`" in told
