"""Where this project keeps what it can do without: the user's cache folder, unless told otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "MCP_TOOLSET_CACHE"
"""The environment variable with another folder; `off` keeps nothing."""

_OFF: Final = frozenset({"off", "0", "false", "no"})


def cache_folder() -> Path | None:
    """The folder, by `MCP_TOOLSET_CACHE` or else by the convention of the platform; `None` for nothing."""
    said = os.environ.get(VARIABLE, "")
    if said.casefold() in _OFF:
        return None
    if said:
        return Path(said)
    from platformdirs import user_cache_path

    return user_cache_path("mcp-toolset")
