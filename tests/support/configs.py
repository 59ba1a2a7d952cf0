"""A configuration, as its file is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp_toolset.config import HubConfig, ServerConfig, load_config


def read(data: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> HubConfig:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mcp.json"
        path.write_text(json.dumps(data))
        return load_config(path, environ=environ or {})


def entry(said: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ServerConfig:
    """The entry of a server, which may have a fault."""
    return read({"mcpServers": {"up": said}}, environ).servers[0]
