"""Callers with replay keys, and a tool that counts its effects, for tests of the journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_toolset import Rules, ToolContext, Toolset, ToolsetServer
from mcp_toolset.journal import JournalGuard

REPLAY_META_KEY = "mcp-toolset/replay-key"

UUID_KEY = "7d9f1c52-6a3b-4a53-9d2f-0b8a3f1c9e77"


class Caller(ToolContext):
    """A caller on a wire of the test's own."""

    def __init__(
        self,
        key: object = None,
        *,
        principal: str | None = None,
        session: str | None = None,
        version: str | None = "2025-11-25",
        resumed: bool = False,
    ) -> None:
        self.principal, self.session, self.protocol_version = principal, session, version
        self._meta = {} if key is None else {REPLAY_META_KEY: key}
        self._resumed = resumed

    @property
    def meta(self) -> dict[str, Any]:
        return self._meta

    @property
    def resumed(self) -> bool:
        return self._resumed


@asynccontextmanager
async def journaled(path: Path, *tools: Any, **options: Any) -> AsyncGenerator[ToolsetServer]:
    """A server of tools whose calls are recorded in a file."""
    async with JournalGuard(path, **options) as guard:
        toolset = tools[0] if isinstance(tools[0], Toolset) else Toolset(*tools)
        async with ToolsetServer(toolset, rules=Rules(guards=[guard])) as server:
            yield server


def noted(result: Any) -> dict[str, Any]:
    """What a result says of its call in the journal."""
    return (result.wire.get("_meta") or {}).get("mcp-toolset/journal") or {}
