"""The configuration on the page of suspended calls can be read, and says what the page says."""

from __future__ import annotations

from pathlib import Path

from mcp_toolset.config import load_config

EXAMPLE = Path(__file__).parents[3] / "examples" / "suspended" / "mcp.json"


def test_j6_the_configuration_of_the_page_is_read() -> None:
    found = load_config(EXAMPLE)
    where, week = EXAMPLE.with_name("suspended.sqlite3"), 604_800
    said = found.extensions["suspended"]
    assert (said.path, said.ttl, said.grant_ttl) == (where, week, week)
    assert not found.warnings
