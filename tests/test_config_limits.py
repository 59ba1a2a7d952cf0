"""Times of sections are seconds."""

from __future__ import annotations

import pytest

from mcp_toolset.config.hub import parse_config


@pytest.mark.needs("code", "large_results")
@pytest.mark.parametrize(
    ("section", "key"), [("large_results", "ttl"), ("code", "timeout"), ("code", "max_compute_seconds")]
)
def test_m7_long_times_of_our_own_sections_are_seconds(section: str, key: str) -> None:
    # A `timeout` of a server's entry is in milliseconds from 10,000 on, as other clients count so.
    config = parse_config({"mcpServers": {}, "toolset": {section: {key: 86_400}}}, source="mcp.json")
    said = getattr(config.extensions[section], key) if section in config.extensions else None
    assert (said or getattr(config, section)[key]) == 86_400
