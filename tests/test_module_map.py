"""The module map of docs/architecture.md names every module."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "module_map"))


def test_the_module_map_is_that_of_the_tree() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert text == SCRIPT["page"](text), "run scripts/module_map"


def test_every_module_and_folder_says_what_it_is() -> None:
    files = (ROOT / "src" / "mcp_toolset").rglob("*.py")
    assert [str(path) for path in files if not SCRIPT["first_line"](path)] == []
