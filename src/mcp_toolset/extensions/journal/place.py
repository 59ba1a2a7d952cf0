"""Where the journal of a user is; known without loading what writes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mcp_toolset.stores.store import users_file

VARIABLE: Final = "MCP_TOOLSET_JOURNAL"
"""The environment variable that names another file."""


def journal_path() -> Path:
    """The file, by `MCP_TOOLSET_JOURNAL` or else in the user's folder for state."""
    if said := os.environ.get(VARIABLE, ""):
        return Path(said)
    return users_file("journal")
