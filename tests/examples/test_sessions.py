"""The configuration of docs/sessions.md says what the page says it does."""

from __future__ import annotations

from pathlib import Path

from mcp_toolset.config import load_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "sessions" / "mcp.json"


def test_the_sharing_of_sessions_is_read_from_a_configuration() -> None:
    read = {one.name: (one.sessions, one.declare, one.eras) for one in load_config(EXAMPLE).servers}
    assert read == {
        "browser": ("client", (), {}),
        "clock": ("shared", (), {}),
        "draw": ("auto", ("sampling",), {"sketch": "legacy"}),
    }
