"""What mounted servers say about themselves, passed on to clients: instructions and `serverInfo`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from mcp_toolset.catalog.instructions import instructions_of
from mcp_toolset.tools.core.source import ToolSource

SERVERS_META_KEY: Final = "mcp-toolset/servers"
"""Where the answers to `initialize` and `server/discover` have the servers behind this one, in `_meta`."""


@runtime_checkable
class Introduced(Protocol):
    """A source that says something about itself."""

    @property
    def instructions(self) -> str:
        """What it tells models; empty for nothing."""
        ...

    def server_info(self) -> dict[str, Any]:
        """Its `serverInfo` in wire form; empty while it is unknown."""
        ...


def servers_meta(sources: Mapping[str, ToolSource], withheld: Collection[str]) -> dict[str, Any]:
    """The `_meta` of a handshake: each mounted server with its state and its `serverInfo`."""
    servers = [
        {"name": name, "state": source.status.state, **({"serverInfo": info} if info else {})}
        for name, source in sources.items()
        if name not in withheld and isinstance(source, Introduced)
        for info in (source.server_info(),)
    ]
    return {SERVERS_META_KEY: servers} if servers else {}


def joint_instructions(sources: Mapping[str, ToolSource], withheld: Collection[str], budget: int) -> str:
    """The instructions of the mounted servers, each under its name."""
    return instructions_of(
        (
            (name, source.instructions)
            for name, source in sources.items()
            if name not in withheld and isinstance(source, Introduced)
        ),
        budget,
    )
