"""What definitions cost a model: the size of their JSON in bytes, and an estimate of the tokens."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_toolset.tools.text.tokens import tokens_of

__all__ = ["size_of", "tokens_of_servers"]


def size_of(value: Any) -> dict[str, int]:
    """The bytes of a JSON value as it is sent, and the tokens that it costs by the rule of thumb."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return {"bytes": size, "tokens_estimate": tokens_of(size)}


def tokens_of_servers(servers: Mapping[str, Mapping[str, Any]], timeout: float | None) -> dict[str, int]:
    """Start the servers, given as the entries of an `mcpServers` file, and count the tokens of their tools.

    A line on stderr says why a server is down; it is missing in the result.
    """
    from mcp_toolset.cli.display.servers import opening, report_down
    from mcp_toolset.cli.mount import MountOptions, mount_config, run
    from mcp_toolset.config import parse_config

    if not servers:
        return {}
    config = parse_config({"mcpServers": servers}, source=Path.cwd() / "the clients")

    async def count() -> dict[str, int]:
        costs: dict[str, int] = defaultdict(int)
        server = mount_config(config, MountOptions(deferred=False, timeout=timeout, keep=False))
        with opening(server):
            async with server:
                await server.settled()
                report_down(server)
                for binding in server.bindings():
                    costs[binding.source] += size_of(binding.to_wire())["tokens_estimate"]
        return dict(costs)

    return run(count)
