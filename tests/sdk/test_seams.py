"""The SDK's inner seams are where `sdk/` expects them."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
)
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from tests.support.spans import Spans

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.sdk import ends_of, lowlevel_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_legacy_connection_is_one_object_for_its_life_and_a_modern_one_is_not(mode: str) -> None:
    seen: list[Connection] = []

    async def remember(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        if ctx.method == "tools/list":
            seen.append(ends_of(ctx.session)[1])
        return await call_next(ctx)

    async def none(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server("s", on_list_tools=none)
    server.middleware.append(remember)
    with anyio.fail_after(40):
        async with Client(server, mode=mode, cache=None) as client:
            await client.list_tools()
            await client.list_tools()
    assert all(isinstance(connection, Connection) for connection in seen)
    assert (seen[0] is seen[1]) == (mode == "legacy")


def test_the_lowlevel_server_behind_each_kind_of_server_is_found() -> None:
    lowlevel: Server[Any] = Server("s")
    assert lowlevel_of(lowlevel) is lowlevel
    assert isinstance(lowlevel_of(MCPServer("m")), Server)
    assert lowlevel_of(["a", "command"]) is None


@pytest.mark.parametrize("provider", ["none", "one"])
async def test_requests_are_traced_exactly_when_somebody_listens(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Spans(monkeypatch).begun
    if provider == "none":
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    async with ToolsetServer(Toolset(say)) as server, Client(server.lowlevel, cache=None) as client:
        await client.call_tool("say", {})
    assert ("tools/call say" in begun) == (provider == "one")


def say() -> str:
    """Say something."""
    return "something"


def test_logins_override_what_the_flows_of_the_sdk_call() -> None:
    hooks = {"_perform_authorization", "_select_authorization_server"}
    assert hooks <= vars(OAuthClientProvider).keys()
    for machine in (ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider):
        assert "_perform_authorization" in vars(machine)
