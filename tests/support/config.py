"""A configuration without a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_toolset.config.hub import parse_config
from mcp_toolset.config.models import HubConfig, ServerConfig


def config_of(
    data: object, source: str | Path = "mcp.json", environ: Mapping[str, str] | None = None
) -> HubConfig:
    """The configuration of a file at `source` with these data and variables, as `load_config` reads it."""
    return parse_config(data, source=source, environ=environ or {})


def entry_of(said: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ServerConfig:
    """The entry of a server, which may have a fault."""
    return config_of({"mcpServers": {"up": said}}, environ=environ).servers[0]
