"""What an entry says counts before what the file says for all servers."""

from __future__ import annotations

from mcp_toolset.config.hub import parse_config


def test_u115_the_pins_of_an_entry_count_before_those_of_the_file() -> None:
    servers = {"one": {"command": "a", "pins": "accept"}, "other": {"command": "b"}}
    data = {"toolset": {"pins": "quarantine"}, "mcpServers": servers}
    assert [one.pins for one in parse_config(data, source="mcp.json").servers] == ["accept", "quarantine"]
