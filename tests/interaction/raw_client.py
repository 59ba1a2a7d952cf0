"""A client of a served toolset, of either era, that shows messages as they come, read by no model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from mcp_toolset import ToolsetServer

INFO = {"name": "raw", "version": "1"}
PREFIX = "io.modelcontextprotocol"


class RawClient:
    """Sends messages, and keeps those that come.

    Attributes:
        capabilities: What it declares.
        welcome: The answer to its handshake; empty in the modern era.
    """

    def __init__(self, send: Any, era: str, capabilities: dict[str, Any] | None = None) -> None:
        self.heard: list[dict[str, Any]] = []
        self.capabilities = capabilities or {}
        self.welcome: dict[str, Any] = {}
        self.era = era
        self._send = send
        self._news = anyio.Event()
        self._next = 0

    async def send(self, **message: Any) -> None:
        """Send one message."""
        whole = jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})
        await self._send.send(SessionMessage(whole))

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._next += 1
        if self.era == "modern":
            version = {f"{PREFIX}/protocolVersion": "2026-07-28", f"{PREFIX}/clientInfo": INFO}
            able = {f"{PREFIX}/clientCapabilities": self.capabilities}
            params["_meta"] = {**version, **able, **params.get("_meta", {})}
        await self.send(id=self._next, method=method, params=params)
        return self._next

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request, or its error."""
        number = await self.begin(method, **params)
        answer = await self.until(lambda message: message.get("id") == number and "method" not in message)
        return answer["result"] if "result" in answer else {"error": answer["error"]}

    async def until(self, wanted: Any) -> dict[str, Any]:
        """The first message that fits, taken out of those that were heard."""
        with anyio.fail_after(30):
            while True:
                for message in self.heard:
                    if wanted(message):
                        self.heard.remove(message)
                        return message
                self._news = anyio.Event()
                await self._news.wait()

    async def told(self, method: str) -> dict[str, Any]:
        """The parameters of the first notification, or question, of a method."""
        return (await self.until(lambda message: message.get("method") == method)).get("params") or {}

    async def take(self, stream: Any) -> None:
        """Keep what comes."""
        async for item in stream:
            assert isinstance(item, SessionMessage)
            self.heard.append(item.message.model_dump(by_alias=True, exclude_unset=True))
            self._news.set()


@asynccontextmanager
async def raw_client(
    server: ToolsetServer, era: str, capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[RawClient]:
    """A client that has shaken hands, if its era does that."""
    async with create_client_server_memory_streams() as (mine, theirs), anyio.create_task_group() as group:
        lowlevel = server.lowlevel
        group.start_soon(lowlevel.run, *theirs, lowlevel.create_initialization_options())
        client = RawClient(mine[1], era, capabilities)
        group.start_soon(client.take, mine[0])
        if era == "legacy":
            hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}, "clientInfo": INFO}
            client.welcome = await client.ask("initialize", **hello)
            await client.send(method="notifications/initialized")
        yield client
        group.cancel_scope.cancel()
