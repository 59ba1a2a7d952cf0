"""Serve every server of an `mcpServers` file as one: `python hub.py CONFIG [--listed] [--transport …]`.

A model sees the four tools of the deferred catalog and `hub_status`; it finds the rest by search.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcp_toolset import SourceStatus, Tool, Toolset, ToolsetServer, load_toolset, serve, tool
from mcp_toolset.config import load_config
from mcp_toolset.errors import ToolsetError
from mcp_toolset.middleware import OutputFormatter

INSTRUCTIONS = "Many tools of several servers, found by search_tools. hub_status tells which servers are up."
DEFAULT_LENGTH = 40_000


class Mounted(BaseModel):
    """How one mounted server is doing."""

    server: str
    state: str
    tools: int
    reason: str = ""
    retry_in_seconds: float | None = None
    set_aside: dict[str, str] = {}


def status_tool(statuses: Callable[[], dict[str, SourceStatus]]) -> Tool[..., Any]:
    """The tool that reports on the mounted servers."""

    @tool(title="Status of the mounted servers", read_only=True, open_world=False)
    async def hub_status() -> list[Mounted]:
        """Which servers are mounted here, which of them are up, and why the others are not."""
        return [
            Mounted(
                server=name,
                state=status.state,
                tools=status.tools,
                reason=status.reason,
                retry_in_seconds=status.retry_in,
                set_aside=dict(status.set_aside),
            )
            for name, status in statuses().items()
        ]

    return hub_status


def hub_server(
    config: str | Path, *, listed: bool = False, max_length: int = DEFAULT_LENGTH
) -> ToolsetServer:
    """The hub over a configuration file.

    Args:
        config: Any `mcpServers` file.
        listed: List the tools as the file says, instead of deferring all of them.
        max_length: Characters of text that one result may have.
    """
    read = load_config(config)
    mounted = load_toolset(read)
    server: ToolsetServer
    report = status_tool(lambda: server.statuses())
    tools = Toolset(report, mounted if listed else mounted.deferred(), name=read.name)
    server = ToolsetServer(
        tools,
        name=read.name,
        instructions=INSTRUCTIONS,
        middleware=[OutputFormatter(max_length)],
        client_prefix=read.client_prefix,
    )
    return server


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the hub; returns the exit code."""
    parser = argparse.ArgumentParser(prog="hub.py", description=__doc__)
    parser.add_argument("config", help="an mcpServers file, as desktop clients and editors write it")
    parser.add_argument(
        "--listed", action="store_true", help="list tools as the file says; defer only what it defers"
    )
    parser.add_argument("--max-length", type=int, default=DEFAULT_LENGTH, help="characters a result may have")
    parser.add_argument("--transport", choices=("stdio", "http", "sse"), default="stdio")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    try:
        server = hub_server(given.config, listed=given.listed, max_length=given.max_length)
        serve(server, transport=given.transport, host=given.host, port=given.port)
    except ToolsetError as fault:
        print(f"hub: {fault}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
