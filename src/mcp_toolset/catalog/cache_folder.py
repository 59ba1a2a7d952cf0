"""`cache_folder`: the folder of data that is cached on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "MCP_TOOLSET_CACHE"  # names another folder; `off` disables caching on disk

_OFF: Final = frozenset({"off", "0", "false", "no"})


def cache_folder() -> Path | None:
    """The folder, by `MCP_TOOLSET_CACHE` or else by the convention of the platform; `None` if disabled."""
    named = os.environ.get(VARIABLE, "")
    if named.casefold() in _OFF:
        return None
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("mcp-toolset")
