"""The file of the page of the catalog gives the names that it has."""

from __future__ import annotations

from pathlib import Path

from mcp_toolset import load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.tools.source import ToolSource

ROOT = Path(__file__).parents[2]


def test_h23_the_file_of_names_is_one_that_can_be_used() -> None:
    config = load_config(ROOT / "examples" / "catalog" / "names.json")
    assert config.client_prefix == "mcp__hub__"
    assert config.servers[0].names == {"git_diff_staged": "staged"}
    sources: list[ToolSource] = load_toolset(config).sources()
    assert [source.source_name for source in sources] == ["git", "my_time"]
