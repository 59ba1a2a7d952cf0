"""`learning_path`: where what a search has learnt is stored unless a file is named."""

from __future__ import annotations

import hashlib
from pathlib import Path


def learning_path(served_as: str) -> Path:
    """The file of what is served, in the user's folder for data."""
    from platformdirs import user_data_path

    name = hashlib.sha256(served_as.encode()).hexdigest()[:16]
    return user_data_path("mcp-toolset", appauthor=False) / "learning" / f"{name}.json"
