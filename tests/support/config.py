"""A configuration without a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mcp_toolset.config import HubConfig
from mcp_toolset.config.hub import parse_config


def config_of(
    data: object, source: str | Path = "mcp.json", environ: Mapping[str, str] | None = None
) -> HubConfig:
    """What `load_config` makes of a file at `source` with these data, with these variables set."""
    return parse_config(data, source=source, environ=environ or {})
