"""One configuration file with the servers that others wrote and that run without a network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.peers.programs import NODE_PLACE, python_of, python_program

PACKAGES = NODE_PLACE / "node_modules"
SMALL = (
    "everything",
    "filesystem",
    "memory",
    "sequential-thinking",
    "github",
    "time",
    "git",
    "fetch",
    "sqlite",
)
"""Those that start in about a second each."""
LARGE = ("playwright", "chrome-devtools", "notion", "context7")
"""Those that take longer, because of their size or the browser that they drive."""
CAPABILITIES = "vision,pdf,testing,tracing,network,storage,devtools"
OFFLINE = ["--disable-gpu", "--disable-background-networking", "--no-first-run"]

Entry = dict[str, Any]


def hub_file(place: Path, names: Iterable[str] = SMALL, *, browser: str = "chromium", **options: Any) -> Path:
    """Write a configuration file that mounts servers of these names.

    Args:
        place: Where the file goes, and the folders and files that the servers work on.
        names: Which of `SMALL` and `LARGE`.
        browser: The Chromium that Playwright and Chrome DevTools drive.
        options: Of each server, such as `deferred=True`.
    """
    place.mkdir(parents=True, exist_ok=True)
    for folder in ("files", "profile"):
        (place / folder).mkdir(exist_ok=True)
    entries = _entries(place, browser)
    servers = {name: {**entries[name], "start_timeout": 60, **options} for name in names}
    file = place / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return file


def _entries(place: Path, browser: str) -> dict[str, Entry]:
    home = {"HOME": str(place), "PATH": os.environ["PATH"]}
    official = "@modelcontextprotocol"
    return {
        "everything": _node(f"{official}/server-everything/dist/index.js", "stdio"),
        "filesystem": _node(f"{official}/server-filesystem/dist/index.js", str(place / "files")),
        "memory": _node(
            f"{official}/server-memory/dist/index.js", env={"MEMORY_FILE_PATH": str(place / "memory.jsonl")}
        ),
        "sequential-thinking": _node(f"{official}/server-sequential-thinking/dist/index.js"),
        "github": _node(
            f"{official}/server-github/dist/index.js", env={"GITHUB_PERSONAL_ACCESS_TOKEN": "none"}
        ),
        "playwright": _node(
            "@playwright/mcp/cli.js",
            *("--headless", "--isolated", "--no-sandbox", "--executable-path", browser),
            *("--caps", CAPABILITIES, "--output-dir", str(place / "files")),
            env=home,
        ),
        "chrome-devtools": _node(
            "chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js",
            *("--headless", "--isolated", "--executablePath", browser, "--no-usage-statistics"),
            *(f"--chromeArg={flag}" for flag in ["--no-sandbox", *OFFLINE]),
            env=home,
        ),
        "notion": _node("@notionhq/notion-mcp-server/bin/cli.mjs", env={"NOTION_TOKEN": "none"}),
        "context7": _node("@upstash/context7-mcp/dist/index.js"),
        "time": {"command": python_program("mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": python_program("mcp-server-git")},
        "fetch": {"command": python_of("fetch"), "args": ["-m", "mcp_server_fetch", "--allow-private-ips"]},
        "sqlite": {
            "command": str(Path(python_of("sqlite")).with_name("mcp-server-sqlite")),
            "args": ["--db-path", str(place / "notes.db")],
        },
    }


def _node(script: str, *arguments: str, env: dict[str, str] | None = None) -> Entry:
    program = str(PACKAGES / "node" / "bin" / "node")
    return {"command": program, "args": [str(PACKAGES / script), *arguments], "env": env or {}}
