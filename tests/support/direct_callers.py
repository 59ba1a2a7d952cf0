"""Callers of one server, without a door: each asks as a client of its era, and keeps what it was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from mcp_toolset import Identity, ToolsetServer
from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.protocol.json_rpc import MCPError

LEGACY, MODERN = "2025-11-25", "2026-07-28"
_VERSION = "io.modelcontextprotocol/protocolVersion"


class Caller:
    """One client of a server, authenticated as somebody or as nobody; also the way to it."""

    can_send_request = False
    reason = None

    def __init__(self, server: ToolsetServer, identity: Identity | None, version: str = MODERN) -> None:
        self.server = server
        self.identity = identity
        self.version = version
        self.texts: list[str] = []
        self.told: list[str] = []
        self._connection = self._made()

    def _made(self) -> Connection:
        accepted = self.version == MODERN
        return Connection(self, protocol_version=self.version, initialize_accepted=accepted)

    @property
    def seen(self) -> str:
        """All answers and notifications so far, as JSON."""
        return "\n".join(self.texts)

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        raise AssertionError(f"asked for {method}")

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        self.told.append(method)
        self.texts.append(json.dumps([method, params]))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return None

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> RequestContext:
        connection = self._made() if self.version == MODERN else self._connection
        http: Any = SimpleNamespace(scope={"type": "http", "user": self.identity}, headers={})
        return RequestContext(method, params or {}, 1, connection, self, http)

    async def open(self) -> dict[str, Any]:
        """Begin, as a client of the era does."""
        if self.version == MODERN:
            return await self.ask("server/discover")
        said = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self.ask("initialize", said)
        await self.server.answers.notified(self.request("notifications/initialized"))
        return answer

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A result, or the error in its place."""
        try:
            result = dict(await self.server.answers.answer(self.request(method, params)))
        except MCPError as refused:
            result = {"error": [refused.code, refused.message, refused.error.data]}
        self.texts.append(json.dumps(result))
        return result

    async def tools(self) -> list[str]:
        """The names that are listed."""
        return [each["name"] for each in (await self.ask("tools/list"))["tools"]]

    async def listed(self, method: str, key: str, by: str = "name") -> list[str]:
        """The names on a list."""
        return [each[by] for each in (await self.ask(method)).get(key, [])]

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments})

    async def found(self, query: str, **options: Any) -> dict[str, Any]:
        """What `search_tools` finds."""
        return (await self.call("search_tools", query=query, **options))["structuredContent"]
