"""The page of the catalog: its program prints what it says, and its file gives the names that it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcp_toolset import load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.tools.source import ToolSource

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "catalog.md").read_text()


@pytest.mark.needs("dynamic_tools")
def test_h7_h8_h10_h12_the_program_of_the_registry_prints_what_the_page_says() -> None:
    file = ROOT / "examples" / "catalog" / "registry.py"
    command = [sys.executable, "-W", "error", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    shown = PAGE.partition("```text\n")[2].partition("```")[0]
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_h23_the_file_of_names_is_one_that_can_be_used() -> None:
    config = load_config(ROOT / "examples" / "catalog" / "names.json")
    assert config.client_prefix == "mcp__hub__"
    assert config.servers[0].names == {"git_diff_staged": "staged"}
    sources: list[ToolSource] = load_toolset(config).sources()
    assert [source.source_name for source in sources] == ["git", "my_time"]
