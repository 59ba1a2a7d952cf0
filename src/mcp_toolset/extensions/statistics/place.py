"""Where statistics are stored, and whether this process stores any; importing it does not load the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "MCP_TOOLSET_STATS"
"""The environment variable that names another file; `off` for none."""

BRIDGED: Final = "MCP_TOOLSET_CHAIN"
"""What a bridge sets for the servers that it starts; see `config.chain`. Their calls are counted there."""


def is_counting() -> bool:
    """True if what this process serves is counted unless it says otherwise."""
    return os.environ.get(VARIABLE) != "off" and BRIDGED not in os.environ


def statistics_path() -> Path | None:
    """The file, by `MCP_TOOLSET_STATS` or else in the user's folder for state; `None` for none."""
    if said := os.environ.get(VARIABLE, ""):
        return None if said == "off" else Path(said)
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "stats.sqlite3"
