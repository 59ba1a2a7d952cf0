"""Any folder of `extensions/` can be deleted, and all of them: the rest runs, and says what is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.support.warm import Warm, warm_process

import mcp_toolset
from mcp_toolset._index import homes, owners

SOURCE = Path(mcp_toolset.__file__).parent
PROGRAM = Path(__file__).with_name("five_programs.py")
FOLDERS = sorted(path.name for path in (SOURCE / "extensions").iterdir() if (path / "__init__.py").exists())

PARTS = 8
SHARES = dict(zip(FOLDERS, combinations(range(PARTS), PARTS // 2), strict=False))
CUTS = [[name for name, parts in SHARES.items() if part in parts] for part in range(PARTS)]
"""Of any two folders, some cut leaves the one and not the other; `scripts/cut` cuts each alone, too."""

ASKED = [[name for name in cut if SHARES[name][0] == part] for part, cut in enumerate(CUTS)]
"""The folders of each cut whose keys are asked for there: each folder's once, and all where all are cut."""

HOOKS = {"auth"}
"""The keys whose keyword is the core's, for what a program makes itself."""

LIBRARIES = (
    *("anyio._backends._asyncio", "click", "cryptography.fernet", "filelock", "httpcore2", "jsonschema_rs"),
    *("platformdirs", "pydantic_core", "sqlite3", "truststore", "unittest.mock"),
)


@pytest.fixture(scope="module")
def libraries() -> Generator[Warm]:
    """Starts scripts at once that import the package themselves, each its own copy."""
    with warm_process(LIBRARIES) as started:
        yield started


def copy_without(folder: Path, cut: list[str]) -> Path:
    """A copy of the package; rooms are links, so that nothing has to be compiled again."""
    package = folder / "copy" / "mcp_toolset"
    _linked(SOURCE, package, {"extensions"})
    _linked(SOURCE / "extensions", package / "extensions", set(cut))
    return package.parent


def _linked(source: Path, copy: Path, without: set[str]) -> None:
    copy.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)
        elif path.name not in {*without, "__pycache__"}:
            (copy / path.name).symlink_to(path)


def test_g8_each_folder_is_cut_without_any_other() -> None:
    alone = {(one, other) for cut in CUTS for one in cut for other in {*FOLDERS} - {*cut}}
    assert len(alone) == len(FOLDERS) * (len(FOLDERS) - 1)


@pytest.mark.parametrize(
    ("cut", "asked"),
    [([], []), *zip(CUTS, ASKED, strict=True), (FOLDERS, FOLDERS)],
    ids=["none", *map(str, range(PARTS)), "all"],
)
def test_g8_the_rest_runs_without_folders(
    cut: list[str], asked: list[str], tmp_path: Path, libraries: Warm
) -> None:
    keys = [key for key, home in homes("key").items() if home in asked]
    reached = {**homes("mount"), **homes("reach")}
    mounting = [name for name, key in owners("keywords").items() if reached[key] in asked]
    paths = f"{copy_without(tmp_path, cut)}:{PROGRAM.parents[2]}"
    environment = {**os.environ, "PYTHONPATH": paths, "HOME": str(tmp_path), "COLUMNS": "120"}
    done = subprocess.run(
        libraries.command(str(PROGRAM), str(tmp_path), *keys, *mounting),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert not [name for name in told["loaded"] for folder in cut if f".{folder}." in f"{name}."]
    if cut == FOLDERS:
        assert told["loaded"] == []
    for key in keys:
        said = told["said"][key]
        for code, words in (said["check"], said["list"]):
            assert code == 1, words
            assert f"toolset.{key}: unknown option" in words
            assert "Traceback" not in words and "unexpected" not in words
        assert (
            key in HOOKS
            or said["keyword"] == f"ToolsetServer.__init__() got an unexpected keyword argument {key!r}"
        )
    for name in mounting:
        code, words = told["said"][name]["check"]
        assert f"toolset.{name}: unknown option" in words
        missing = f"RemoteToolset.__init__() got an unexpected keyword argument {name!r}"
        assert told["said"][name]["mount"] == missing
    for name, home in homes("commands").items():
        there = home not in cut
        assert (f"  {name}  " in told["help"]) is there
