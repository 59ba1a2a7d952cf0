"""What definitions cost a model: the size of their JSON in bytes, and an estimate of the tokens."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_toolset.tools.text.screen import tokens_of

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.core.source import SourceStatus

_Result = TypeVar("_Result")

__all__ = ["read_once", "size_of", "statuses_of", "tokens_of_servers"]


def read_once(config: HubConfig, timeout: float | None, take: Callable[[ToolsetServer], _Result]) -> _Result:
    """What `take` makes of the servers of a configuration, once each has listed its tools or failed."""
    from mcp_toolset.cli.display.servers import opening
    from mcp_toolset.cli.logs import logging_of
    from mcp_toolset.cli.mount import MountOptions, mount_config, run
    from mcp_toolset.cli.target import ConfigFile

    server = mount_config(config, MountOptions(deferred=False, timeout=timeout).looking)

    async def reading() -> _Result:
        with logging_of(server, ConfigFile(str(config.path))), opening(server):
            async with server:
                await server.settled()
                return take(server)

    return run(reading)


def statuses_of(config: HubConfig, timeout: float | None) -> Mapping[str, SourceStatus]:
    """Start the servers of a configuration; the status of each."""
    return read_once(config, timeout, lambda server: dict(server.statuses()))


def size_of(value: Any) -> dict[str, int]:
    """The bytes of a JSON value as it is sent, and the tokens that it costs by the rule of thumb."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return {"bytes": size, "tokens_estimate": tokens_of(size)}


def tokens_of_servers(servers: Mapping[str, Mapping[str, Any]], timeout: float | None) -> dict[str, int]:
    """Start the servers, given as the entries of an `mcpServers` file, and count the tokens of their tools.

    A line on stderr says why a server is down; it is missing in the result.
    """
    from mcp_toolset.cli.display.servers import report_down
    from mcp_toolset.config import parse_config

    if not servers:
        return {}
    config = parse_config({"mcpServers": servers}, source=Path.cwd() / "the clients")

    def count(server: ToolsetServer) -> dict[str, int]:
        costs: dict[str, int] = defaultdict(int)
        report_down(server)
        for binding in server.bindings():
            costs[binding.source] += size_of(binding.to_wire())["tokens_estimate"]
        return dict(costs)

    return read_once(config, timeout, count)
