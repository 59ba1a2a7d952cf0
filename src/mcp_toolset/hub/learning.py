"""`learning_of`: what the search of a configuration learns from use, and the file that keeps it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mcp_toolset.catalog.search.learning import SearchLearning
from mcp_toolset.config import HubConfig


def learning_path(config: HubConfig) -> Path:
    """The file: the one that the configuration names, else one of its own in the user's folder for data."""
    if config.learning is not None and config.learning["path"] is not None:
        return Path(config.learning["path"])
    from platformdirs import user_data_path

    name = hashlib.sha256(str(config.path).encode()).hexdigest()[:16]
    return user_data_path("mcp-toolset", appauthor=False) / "learning" / f"{name}.json"


def learning_of(config: HubConfig) -> SearchLearning:
    """What search learns, by the settings of the configuration."""
    bounds = {key: value for key, value in (config.learning or {}).items() if key != "path"}
    return SearchLearning(learning_path(config), **bounds)
