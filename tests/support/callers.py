"""Several callers of one server over HTTP, each with a token of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from mcp_toolset import Identity


class Callers:
    """Verifies `token-of-NAME`; `more` has what identities are made of besides the name, by name."""

    issuer = ""

    def __init__(self, more: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.more = more or {}

    async def verify(self, token: str) -> Identity | None:
        kind, _, name = token.rpartition("-of-")
        facts = {"subject": name, **self.more.get(name, {})}
        return Identity.of(None, facts.pop("subject"), **facts) if kind.startswith("token") else None


@asynccontextmanager
async def client_of(
    url: str,
    name: str,
    mode: str = "legacy",
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncGenerator[Client]:
    """A client of a caller; `mode` is `legacy`, `sse` or a revision."""
    sent = {"Authorization": f"Bearer {token or f'token-of-{name}'}", **(headers or {})}
    if mode == "sse":
        async with Client(
            sse_client(f"{url}/sse", headers=sent), mode="legacy", cache=None, **more
        ) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers=sent, timeout=60) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None, **more) as client:
            yield client


async def tools(client: Client) -> dict[str, str | None]:
    """What a client is listed: descriptions by name."""
    return {tool.name: tool.description for tool in (await client.list_tools()).tools}


async def until_listed(client: Client, names: set[str]) -> None:
    """Wait until a client is listed these tools: a list waits a few seconds only for a busy server."""
    with anyio.fail_after(30):
        while set(await tools(client)) != names:
            await anyio.lowlevel.checkpoint()
