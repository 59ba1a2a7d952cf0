"""Who calls is known the same on every way that a request can take, past the SDK or through it (P5)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from starlette.authentication import AuthCredentials, SimpleUser
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.interaction.conftest import ERAS
from tests.support.served import listening

from mcp_toolset import Identity, ToolCall, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


class SignedIn:
    """Takes the bearer token for the name of the user."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            scope["user"] = SimpleUser(token.removeprefix("Bearer "))
            scope["auth"] = AuthCredentials(["read"])
        await self._app(scope, receive, send)


class Seen:
    """Middleware that notes its callers."""

    def __init__(self) -> None:
        self.callers: list[tuple[Any, Any, Any]] = []
        self.identities: list[Identity | None] = []

    async def __call__(self, call: ToolCall, context: Any, next: CallNext) -> ToolResult:
        self.callers.append((context.principal, context.authorization, context.client_key))
        self.identities.append(context.identity)
        return await next()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def url(seen: Seen) -> AsyncIterator[str]:
    async with ToolsetServer(Toolset(echo), middleware=[seen]) as server:
        app = server.http_app()
        app.add_middleware(SignedIn)
        async with listening(app) as address:
            yield address


@asynccontextmanager
async def client(url: str, transport: str, era: str, name: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {name}"}
    mode = "legacy" if era == "legacy" else "2026-07-28"
    async with httpx2.AsyncClient(headers=headers) as http:
        target: Any = (
            sse_client(f"{url}/sse", headers=headers)
            if transport == "sse"
            else streamable_http_client(f"{url}/mcp", http_client=http)
        )
        with anyio.fail_after(40):
            async with Client(target, mode=mode, cache=None) as connected:
                yield connected


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_p5_a_call_knows_its_principal_and_its_client(
    url: str, seen: Seen, transport: str, era: str
) -> None:
    for name in ("ann", "bob"):
        async with client(url, transport, era, name) as connected:
            for text in ("one", "two"):
                await connected.call_tool("echo", {"text": text})
    ann, again, bob, _ = seen.callers
    known = [caller[:2] for caller in seen.callers]
    assert known == [("ann", "Bearer ann")] * 2 + [("bob", "Bearer bob")] * 2
    assert seen.identities[0] == Identity("ann", subject="ann", scopes=frozenset({"read"}))
    assert ann[2] == again[2]
    if (transport, era) == ("http", "modern"):
        assert ann[2] is None
    else:
        assert ann[2] is not None
        assert ann[2] != bob[2]
