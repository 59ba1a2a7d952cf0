"""`Surface`: what `MCPServer` needs of a toolset server; `ClientSide` has it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from mcp_toolset.protocol.cache_hints import CacheHint
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult


class Surface(Protocol):
    """What the wire needs of a toolset server."""

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call through the dispatch table."""
        ...

    def listed_to(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that a caller sees, in wire form: one object for as long as nothing changes."""
        ...

    def unknown_to(self, context: ToolContext) -> bool:
        """Whether it has still to be found out what some server lists to clients like this one."""
        ...

    async def known_to(self, context: ToolContext) -> None:
        """Wait, for a little while at most, until that is known and served."""
        ...

    def granted(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that only this caller sees, a legacy one, in wire form."""
        ...

    def list_hint(self) -> CacheHint:
        """How long a client may keep what `listed` gives."""
        ...

    def list_meta(self) -> Mapping[str, Any]:
        """What the servers' own lists of tools have in `_meta`."""
        ...

    def handshake_meta(self) -> dict[str, Any]:
        """What the answer to a handshake has in `_meta`."""
        ...

    def is_arriving(self) -> bool:
        """Whether `arrive` may have something to wait for."""
        ...

    async def arrive(self) -> None:
        """Wait a bounded time for listed mounts of which nothing is known yet."""
        ...

    def grants_issued(self, context: ToolContext) -> int:
        """How many grants this caller's session was given so far."""
        ...

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool that can be called."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the upstreams open for as long as the block runs."""
        ...
