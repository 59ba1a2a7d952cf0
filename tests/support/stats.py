"""The statistics of a file, as `mcp-toolset stats --json` prints them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.cli.in_process import run_here


def told(path: Path, *words: str) -> dict[str, Any]:
    done = run_here(
        ["stats", *words, "--json"], path.parent, {**os.environ, "MCP_TOOLSET_STATS": str(path)}, ""
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_server(path: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in told(path)["servers"]}


def words_in(path: Path, *words: str) -> list[str]:
    """Those of some words that the file has."""
    content = path.read_bytes().decode(errors="replace")
    return [word for word in words if word in content]


def all_counted(path: Path, servers: int) -> bool:
    """True if calls of so many servers are saved."""
    return path.exists() and sum(bool(one["calls"]) for one in told(path)["servers"]) == servers
